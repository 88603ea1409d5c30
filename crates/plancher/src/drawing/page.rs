//! The frame of a self-contained page: its style, and tables as HTML. Nothing is loaded from elsewhere.

use std::fmt::Write as _;

use super::chart::{escape, palette};

const STYLE: &str = "\
*{box-sizing:border-box}
body{margin:0;background:var(--ground);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1080px;margin:0 auto;padding:20px 16px 48px}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 4px}
h2{font-size:1.1rem;margin:32px 0 8px}
p{margin:6px 0}
.faint{color:var(--faint);font-size:.9rem}
.verdict{background:var(--card);border-left:4px solid var(--a);border-radius:6px;padding:12px 14px;margin:16px 0;font-size:1.1rem;font-weight:600}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:20px;align-items:start}
.charts svg{width:100%;max-width:640px;height:auto;display:block}
.scroll{overflow-x:auto;border:1px solid var(--grid);border-radius:8px}
table{border-collapse:separate;border-spacing:0;width:100%;font-size:.88rem;font-variant-numeric:tabular-nums}
th,td{padding:6px 10px;text-align:right;white-space:nowrap;border-bottom:1px solid var(--grid)}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--ground)}
.words{text-align:left;white-space:normal;min-width:6rem}
td.words+td.words{min-width:13rem}
@media (max-width:600px){td:first-child{white-space:normal;max-width:9rem}}
th{color:var(--faint);font-weight:600}
tr:last-child td{border-bottom:0}
tr.sum td{font-weight:700}
ul{padding-left:1.2em;margin:6px 0}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.8rem;background:var(--card);padding:12px;border-radius:8px}
summary{cursor:pointer}";

/// A whole page around `body`.
pub(crate) fn frame(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width,initial-scale=1\">\n<title>{title}</title>\n<style>\n{}\n{STYLE}\n</style>\n</head>\n<body>\n<main>\n\
         {body}</main>\n</body>\n</html>\n",
        palette(":root")
    )
}

/// A table; rows that begin with `=` are sums. Columns up to `words` are prose.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>], words: Option<usize>) -> String {
    let mut out = "<div class=\"scroll\"><table>\n<tr>".to_owned();
    let class =
        |column: usize| if words.is_some_and(|last| column > 0 && column <= last) { " class=\"words\"" } else { "" };
    for (column, cell) in header.iter().enumerate() {
        let _ = write!(out, "<th{}>{}</th>", class(column), escape(cell));
    }
    out.push_str("</tr>\n");
    for row in rows {
        let sum = row.first().is_some_and(|cell| cell.starts_with('='));
        out.push_str(if sum { "<tr class=\"sum\">" } else { "<tr>" });
        for (column, cell) in row.iter().enumerate() {
            let _ = write!(out, "<td{}>{}</td>", class(column), escape(cell.trim_start_matches("= ")));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    out
}

/// A paragraph.
pub(crate) fn paragraph(text: &str, class: &str) -> String {
    format!("<p class=\"{class}\">{}</p>\n", escape(text))
}
