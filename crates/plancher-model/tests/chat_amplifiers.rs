//! Small templates that would do enormous work: each is refused, and none takes the process down.

use std::path::Path;

use plancher_model::{ChatMessage, ChatOptions, ChatTemplate};

fn render(source: &str) -> Result<String, String> {
    let template = ChatTemplate::from_gguf(Path::new("test.gguf"), source, Some("<s>"), None);
    let messages = [ChatMessage::new("user", "Hi"), ChatMessage::new("assistant", "Hello, you.")];
    template.render(&messages, &ChatOptions::default()).map_err(|error| error.to_string())
}

fn is_refused(source: &str) {
    let start: String = source.chars().take(200).collect();
    let error = render(source).map(|prompt| prompt.len()).expect_err(&start);
    assert!(error.starts_with("`test.gguf`: `chat_template`: "), "{start}: {error}");
    assert!(error.len() < 300 && !error.contains('\n'), "{start}: {error}");
    println!("{start}\n    {error}");
}

/// A list of 2^60 numbers in `n.x`, made with `step`.
fn doubled(step: &str, end: &str) -> String {
    format!("{{% set n = namespace(x=[0]) %}}{{% for i in range(60) %}}{{% set n.x = {step} %}}{{% endfor %}}{end}")
}

#[test]
fn repeated_lists() {
    for source in [
        "{{ '' ~ [0] * 99999999 }}",
        "{% if 1 in [0] * 99999999 %}{% endif %}",
        "{{ 1 in ([0]) * 99999999 }}",
        "{{ 1 in 99999999 * ([0]) }}",
        "{{ 1 in 99999999 * -(([0])) }}",
        "{{ [0] * 99999999 == [0] * 99999999 }}",
        "{{ (0, 0) * 99999999 }}",
        "{{ ([0] * 99999999) | string }}",
        "{{ [[0] * 9999] * 9999 }}",
        "{% set x = [0] %}{{ '' ~ x * 99999999 }}",
        "{% set x = [0] %}{{ 1 in x * 99999999 }}",
        "{% set x = [0] %}{{ x * 99999999 == x * 99999999 }}",
        "{% set x = [0] %}{{ (x * 99999999) | length }}",
        "{% set x = [0] %}{{ (x * 99999999)[::-1] }}",
        "{% set x = [0] %}{{ 'a'.join(x * 99999999) }}",
        "{% set x = [0] %}{{ [x * 9999] * 9999 }}",
        "{% set x = (0, 0) %}{{ (x * 99999999) | length }}",
    ] {
        is_refused(source);
    }
}

#[test]
fn doubled_values() {
    let ends = ["{{ n.x }}", "{{ n.x | join }}", "{{ '' ~ n.x }}", "{{ n.x | tojson }}", "{{ {n.x: 1} }}", ""];
    for end in ends {
        is_refused(&doubled("n.x + n.x", end));
        is_refused(&doubled("[n.x, n.x]", end));
        is_refused(&doubled("{'a': n.x, 'b': n.x}", end));
        is_refused(&doubled("dict(a=n.x, b=n.x)", end));
        is_refused(&doubled("(n.x, n.x)", end));
        is_refused(&doubled("[n.x, n.x] | sum(start=[])", end));
        is_refused(&doubled("n.x ~ n.x", end));
    }
    let macros = "{% macro m(x, n) %}{% if n %}{{ m([x, x], n - 1) }}{% else %}{{ '' ~ x }}{% endif %}{% endmacro %}";
    is_refused(&format!("{macros}{{{{ m([0], 45) }}}}"));
    let straight = "{% set a = [a, a] %}".repeat(40);
    is_refused(&format!("{straight}{{{{ a == a }}}}"));
    is_refused(&format!("{straight}{{{{ [a] | unique }}}}"));
    is_refused(
        "{% for x in [[0]] recursive %}{% if loop.depth < 60 %}{{ loop([[x, x]]) }}{% else %}{{ '' ~ x }}{% endif %}{% endfor %}",
    );
}

#[test]
fn deep_values() {
    let deep = |step: &str| {
        format!(
            "{{% set n = namespace(x=[0], t='a') %}}{{% for i in range(90000) %}}{{% set n.x = {step} %}}{{% endfor %}}"
        )
    };
    for step in ["[n.x]", "(n.x,)", "{'a': n.x}", "dict(a=n.x)", "namespace(x=n.x)", "namespace(x=n)", "n", "[n]"] {
        is_refused(&deep(step));
    }
    is_refused("{% set n = namespace() %}{% set n.x = n %}{{ n }}");
    is_refused("{% set n = namespace() %}{% macro m() %}{{ n }}{% endmacro %}{% set n.x = m %}");
    is_refused(
        "{% set h = namespace(c=0) %}{% for i in range(90000) %}{% set a = namespace() %}{% if h.c %}{% set b = h.c %}{% set b.x = a %}{% endif %}{% set h.c = a %}{% endfor %}",
    );
    is_refused("{% for i in range(3) %}{{ loop.changed([loop]) }}{% endfor %}");
    // Lazy values are not nested in each other.
    for step in ["n.x[0:]", "n.x[:]", "n.x + []", "n.x | list", "n.x | map('int')", "n.x | reverse"] {
        let source = deep(step).replace("90000", "9000");
        assert!(render(&source).is_ok_and(|prompt| prompt.is_empty()), "{step}: {:?}", render(&source));
    }
}

#[test]
fn long_strings() {
    for source in [
        "{{ 'a' * 1000000000 }}",
        "{{ 'a' * 10 ** 9 }}",
        "{{ 'a' | center(1000000000) }}",
        "{{ 'a'.center(1000000000) }}",
        "{{ 'a'.ljust(1000000000) }}",
        "{{ 'a'.rjust(1000000000) }}",
        "{{ 'a'.zfill(1000000000) }}",
        "{{ 'a\nb' | indent(1000000000) }}",
        "{{ 'a\nb' | indent('b' * 100000000) }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ '%*d' | format(999999999, 1) }}",
        "{{ '%.999999999f' | format(1) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:.999999999f}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{% for i in range(99999) %}{{ '{:999}{:999}{:999}{:999}'.format(1, 1, 1, 1) }}{% endfor %}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ ('a' * 900000).split('a') | length }}{{ ('a' * 90000000).split('a') | length }}",
        "{{ ('a' * 9000000) | list | length }}{{ ('a' * 30000000) | list | length }}",
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{% if x[-1:] %}{% endif %}{% endfor %}",
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{% if x is lower %}{% endif %}{% endfor %}",
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{% if 'b' in x %}{% endif %}{% endfor %}",
        "{% set x = 'a' * 9000000 %}{% for i in range(99999) %}{% if x == x ~ '' %}{% endif %}{% endfor %}",
        "{{ ('a' * 9000).replace('a', 'a' * 9000) }}",
        "{{ ('a' * 9000) | replace('a', 'a' * 9000) }}",
        "{{ ('a' * 9000).join('a' * 9000) }}",
        "{{ range(90000) | join('a' * 9000) }}",
        "{{ range(99999) | batch(999999999, 'x') | list }}",
        "{{ range(99999) | slice(999999999, 'x') | list }}",
        "{{ range(99999) | map('string') | join('a' * 999) }}",
        "{{ [1] | tojson(indent='a' * 99999999) }}",
        "{{ debug() }}",
        "{% set n = namespace(x=[]) %}{% for i in range(9000) %}{% set n.x = n.x + ['a' * 1000] %}{% endfor %}{{ n.x | sum(start='') }}",
        "{% for i in range(9999) %}{{ range(99) | map(attribute='a.' * 400000) | list }}{% endfor %}",
        "{% for i in range(9999) %}{{ range(99) | sort(attribute='a.' * 400000) | list }}{% endfor %}",
    ] {
        is_refused(source);
    }
}

#[test]
fn deep_sources() {
    let repeated = |before: &str, piece: &str, after: &str| {
        for count in [60_000, 200_000] {
            let source = format!("{before}{}{after}", piece.repeat(count / piece.len()));
            if let Ok(prompt) = render(&source) {
                assert!(prompt.len() <= 200_000, "{before}{piece}: {} bytes", prompt.len());
            }
        }
    };
    for piece in
        ["(", "[", "{1:", "not ", "-", "+", "1 if 1 else ", "x(", "x[", "1+", "1 ~ ", "1 and ", "1 == ", "2 ** "]
    {
        repeated("{{ ", piece, "1 }}");
        is_refused(&format!("{{{{ {}1 }}}}", piece.repeat(9000)));
    }
    for piece in ["+1", ".a", "[0]", "|upper", "|upper()", "()", " is defined", " if 1", " and 1", ",1", "[1:]"] {
        is_refused(&format!("{{{{ x{} }}}}", piece.repeat(9000)));
    }
    is_refused(&format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(9000)));
    for piece in ["{% if 1 %}", "{% for i in [1] %}", "{% macro m() %}", "{% set x %}", "{% filter upper %}"] {
        is_refused(&piece.repeat(9000));
    }
    repeated("", "{% if 1 %}{% endif %}", "");
    repeated("", "{{ x is defined }}", "");
    is_refused(&"x".repeat(300_000));
}

#[test]
fn endless_rendering() {
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}",
        "{% block a %}{{ self.a() }}{{ self.a() }}{% endblock %}",
        "{% include 'default' %}",
        "{% extends 'default' %}",
        "{% import 'default' as x %}",
        "{{ range(99999999999) | list }}",
        "{{ range(99999) | sort(attribute='x') | map('string') | unique | list | tojson }}{{ range(99999) | list | tojson }}",
    ] {
        is_refused(source);
    }
}

#[test]
fn slices_are_those_of_python() {
    for (expression, expected) in [
        ("'abcdef'[1:3]", "bc"),
        ("'abcdef'[-2:]", "ef"),
        ("'abcdef'[::-2]", "fdb"),
        ("'héllo'[1:-1]", "éll"),
        ("'abc'[5:] ~ 'abc'[-9:1] ~ 'abc'[2:-9:-1]", "acba"),
        ("[1, 2, 3][1:]", "[2, 3]"),
        ("[1, 2, 3][::-1]", "[3, 2, 1]"),
        ("(1, 2, 3)[:2]", "(1, 2)"),
        ("range(5)[1:9:2]", "[1, 3]"),
        ("none[1:]", "[]"),
        ("[1, 2] * 2 if false else 2 * 3", "6"),
        ("(1 + 2) * 3 * (4 - 1)", "27"),
        ("'ab' * 2", "abab"),
        ("messages[1:][0].content[:5]", "Hello"),
    ] {
        let rendered = render(&format!("{{{{ {expression} }}}}"));
        match rendered {
            Err(error) if expression.starts_with("[1, 2] *") => assert!(error.contains("repeating a list"), "{error}"),
            rendered => assert_eq!(rendered.as_deref(), Ok(expected), "{expression}"),
        }
    }
}
