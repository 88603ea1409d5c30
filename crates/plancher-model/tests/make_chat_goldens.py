"""Renders chat templates with Hugging Face transformers, as goldens for `src/chat/golden.rs`.

Usage: make_chat_goldens.py DIRECTORY... > data/chat/golden.json
The directories hold `*.jinja`: `data/chat`, and llama.cpp's `models/templates`, which tests/fetch puts in
target/test-data/templates. Only what transformers printed is stored, with the sha256 of the template: the fetched
templates are not part of the project. Needs transformers.
"""
import datetime
import hashlib
import json
import pathlib
import sys

import jinja2
from transformers.utils import chat_template_utils

NOW = datetime.datetime(2025, 1, 2, 3, 4, 5)


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedClock

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather at a place, in °C & \"words\" <b>",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 1}},
                "required": ["city"],
            },
        },
    }
]
CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2}}}
USER = {"role": "user", "content": "Why is the sky blue?"}
CONVERSATIONS = {
    "user": {"messages": [USER], "add_generation_prompt": True},
    "no_prompt": {"messages": [USER], "add_generation_prompt": False},
    "system": {"messages": [{"role": "system", "content": "Be brief.\n"}, USER], "add_generation_prompt": True},
    "turns": {
        "messages": [
            {"role": "system", "content": "You answer in rhymes."},
            {"role": "user", "content": "  Grüße 🦙 <b>\n\n'quoted' {{ not a tag }}  "},
            {"role": "assistant", "content": " Hello\n"},
            {"role": "user", "content": "Again?"},
        ],
        "add_generation_prompt": True,
    },
    "ends_with_assistant": {
        "messages": [USER, {"role": "assistant", "content": "Rayleigh."}],
        "add_generation_prompt": False,
    },
    "thinking": {
        "messages": [USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nRayleigh."}, USER],
        "add_generation_prompt": True,
    },
    "no_thinking": {"messages": [USER], "add_generation_prompt": True, "enable_thinking": False},
    "tools": {"messages": [USER], "tools": TOOLS, "add_generation_prompt": True},
    "tool_call": {
        "messages": [
            {"role": "user", "content": "Weather in Zürich?"},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "get_weather", "tool_call_id": "abcdefgh1", "content": "{\"t\": -1.5}"},
        ],
        "tools": TOOLS,
        "add_generation_prompt": True,
    },
    "parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Look."}, {"type": "text", "text": "Here."}]}],
        "add_generation_prompt": True,
    },
    "wrong_order": {
        "messages": [{"role": "assistant", "content": "I begin."}, USER, USER],
        "add_generation_prompt": True,
    },
}
# Longer templates are tool-calling formats of models that are not supported; they would make the file large.
LONGEST = 5000
# Adds text to strings marked safe, which Jinja2 then escapes as HTML and minijinja does not.
LEFT_OUT = ["meetkai-functionary-medium-v3.1.jinja"]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}


def render(template, conversation):
    """The prompt; {"refused": message} when the template refuses; None when it does not fit the conversation."""
    options = {name: value for name, value in conversation.items() if name not in ("messages", "tools")}
    try:
        rendered = chat_template_utils.render_jinja_template(
            conversations=[conversation["messages"]],
            tools=conversation.get("tools"),
            chat_template=template,
            **options,
            **SPECIAL,
        )
    except jinja2.exceptions.TemplateError as error:
        return {"refused": str(error)} if type(error) is jinja2.exceptions.TemplateError else None
    except (TypeError, ValueError, AttributeError, KeyError):
        return None
    while isinstance(rendered, (tuple, list)):
        rendered = rendered[0]
    return rendered


def main(*directories):
    paths = sorted(path for directory in directories for path in pathlib.Path(directory).glob("*.jinja"))
    rendered = {}
    for path in paths:
        source = path.read_text()
        if len(source) > LONGEST or path.name in LEFT_OUT:
            continue
        cases = {key: render(source, conversation) for key, conversation in CONVERSATIONS.items()}
        cases = {key: value for key, value in cases.items() if value is not None}
        if cases:
            rendered[path.name] = {"sha256": hashlib.sha256(source.encode()).hexdigest(), "cases": cases}
    golden = {"special_tokens": SPECIAL, "conversations": CONVERSATIONS, "rendered": rendered}
    print(json.dumps(golden, ensure_ascii=False, indent=1))
    print(f"{len(rendered)} templates, {sum(len(entry['cases']) for entry in rendered.values())} prompts", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
