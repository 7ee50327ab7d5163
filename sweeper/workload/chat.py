"""From conversations to prompts: through the target's chat template where they have roles, raw where they are texts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sweeper.config import StudyConfig
from sweeper.errors import SweeperError
from sweeper.server.command import launch_environment
from sweeper.server.hub import asking_environment
from sweeper.server.install import installed_version
from sweeper.server.log_text import last_words
from sweeper.server.setup import own_flags
from sweeper.user_cache import cached_answer, write_cached
from sweeper.workload import render_chat
from sweeper.workload.conversation import (
    CannotRenderHereError,
    Conversation,
    Conversations,
    History,
    Prompt,
    WorkloadError,
)
from sweeper.workload.tokenizer_files import (
    context_tokens,
    has_chat_template,
    identity,
    processor_template,
    special_tokens,
    tokenizer_of,
)

TIMEOUT_S = 900.0
"""Importing takes half a minute on a slow disk or processor, rendering a hundred thousand conversations minutes."""

_ROLES_NEED_A_TEMPLATE = (
    "set engine.extra_args.chat-template to a .jinja file, or give plain prompts (which are sent as they are)"
)


@dataclass(frozen=True)
class Rendered:
    """Prompts in the order of their conversations; those too long for the target are left out, with a note."""

    prompts: tuple[Prompt, ...]
    notes: tuple[str, ...] = ()


def is_rendered(study: StudyConfig, conversation: Conversation) -> bool:
    """Whether a conversation goes through the chat template."""
    asked = study.workload.chat_template
    return not conversation.plain if asked is None else asked


def needs_tokenizer(study: StudyConfig, conversations: Conversations) -> bool:
    """Whether the target's tokenizer must be asked: to render, or to count input tokens."""
    return bool(study.workload.input_lengths) or any(is_rendered(study, item) for item in conversations)


def raw_warning(study: StudyConfig, conversations: Conversations) -> str | None:
    """Plain prompts of a target that has a chat template: its drafts were trained on rendered text.

    None where the study says ``chat_template: false``, or where the texts were rendered before.
    """
    plain = [item for item in conversations if not is_rendered(study, item)]
    if not plain or study.workload.chat_template is False or not has_chat_template(study):
        return None
    marks = special_tokens(study)
    if all(any(mark in item.turns[0][-1].content for mark in marks) for item in plain[:32]):
        return None
    return (
        "plain prompts are sent raw though the target has a chat template: real chats are rendered, and accept lengths "
        "differ; set workload.chat_template: true to render them, or false to say that raw is meant"
    )


def render(study: StudyConfig, conversations: Conversations) -> Rendered:
    """Conversations as texts. Only where it must, the tokenizer is asked, in the engine's interpreter.

    Raises:
        WorkloadError: the target has no chat template, or it or the tokenizer refuses a conversation.
        SweeperError: a variable of ``engine.env`` is not set here.
    """
    raw = [item for item in conversations if not is_rendered(study, item)]
    for item in raw:
        _check_raw(item)
    notes = _notes(study, conversations, len(raw))
    if not needs_tokenizer(study, conversations):
        return Rendered(tuple(Prompt(item.id, item.turns[0][0].content) for item in conversations), notes)
    answer = _ask(study, conversations)
    if "error" in answer:
        raise _refusal(study, conversations, answer)
    pairs = list(zip(conversations, answer["prompts"], strict=True))
    limit = context_tokens(study)
    fitting = [(item, found) for item, found in pairs if limit is None or _at_most(study, found) <= limit]
    prompts = tuple(_prompt(item, found) for item, found in fitting)
    return Rendered(prompts, (*notes, *answer["notes"], *_too_long(study, pairs, fitting)))


def _check_raw(item: Conversation) -> None:
    messages = [message for turn in item.turns for message in turn]
    if len(messages) > 1 or messages[0].role != "user":
        raise WorkloadError(
            f"{item.where}: workload.chat_template is false, but roles and turns cannot be written without a template; "
            "leave chat_template out, or give plain prompts"
        )


def _notes(study: StudyConfig, conversations: Conversations, raw: int) -> tuple[str, ...]:
    rendered = len(conversations) - raw
    kwargs = ", ".join(f"{name}={value!r}" for name, value in study.workload.chat_template_kwargs.items())
    notes = []
    if rendered:
        notes.append(f"chat template of the target{' with ' + kwargs if kwargs else ''}")
    elif kwargs:
        notes.append(f"workload.chat_template_kwargs ({kwargs}) has no effect: no prompt is rendered")
    recorded = sum(any(m.role == "assistant" for turn in item.turns for m in turn) for item in conversations)
    if recorded:
        notes.append(f"{recorded} prompts are requests with the replies of their time as history")
    if warning := raw_warning(study, conversations):
        notes.append(warning)
    elif raw:
        notes.append("plain prompts are sent raw, without a chat template")
    return tuple(notes)


def _prompt(item: Conversation, found: Mapping[str, Any]) -> Prompt:
    follow_ups = tuple(found["follow_ups"])
    return Prompt(item.id, found["text"], follow_ups, found["input_tokens"], History(**found["history"]))


def _at_most(study: StudyConfig, found: Mapping[str, Any]) -> int:
    """The most tokens that the last request of a conversation can have, its output included."""
    return int(found["all_tokens"]) + study.workload.max_new_tokens * (1 + len(found["follow_ups"]))


def _too_long(study: StudyConfig, pairs: list[Any], fitting: list[Any]) -> tuple[str, ...]:
    if len(fitting) == len(pairs):
        return ()
    item, found = max(pairs, key=lambda pair: _at_most(study, pair[1]))
    return (
        f"{len(pairs) - len(fitting)} prompts are left out: with workload.max_new_tokens they exceed the target's "
        f"context of {context_tokens(study)} tokens (the longest: {item.where}, up to {_at_most(study, found)} tokens)",
    )


def _refusal(study: StudyConfig, conversations: Conversations, answer: Mapping[str, Any]) -> WorkloadError:
    index, reason = answer.get("index"), answer["error"]
    if index is not None:
        return WorkloadError(f"{conversations.items[index].where}: {reason}")
    first = next(item for item in (*conversations, None) if item is None or is_rendered(study, item))
    where = f"; rendering is asked for by {first.where}: {_ROLES_NEED_A_TEMPLATE}" if first else ""
    if answer.get("here"):
        return CannotRenderHereError(f"engine.model: {tokenizer_of(study)[0]}: {reason}")
    return WorkloadError(f"engine.model: {tokenizer_of(study)[0]}: {reason}{where}")


def _ask(study: StudyConfig, conversations: Conversations) -> dict[str, Any]:
    """What ``render_chat`` answers, asked once per interpreter, tokenizer and input."""
    model, revision = tokenizer_of(study)
    asked = {
        "model": model,
        "revision": revision,
        "trust_remote_code": bool(own_flags(study).get("trust-remote-code")),
        "template": _own_template(study),
        "kwargs": study.workload.chat_template_kwargs,
        "conversations": [
            {
                "turns": [[{"role": m.role, "content": m.content} for m in turn] for turn in item.turns],
                "render": is_rendered(study, item),
            }
            for item in conversations
        ],
    }
    given = json.dumps(asked)
    try:
        cached = _cache_file(study, given)
    except SweeperError as error:  # a secret of engine.env that only the servers' nodes have
        raise CannotRenderHereError(str(error)) from None
    try:
        stored: dict[str, Any] = json.loads(cached.read_bytes())
        return stored
    except (OSError, ValueError):
        pass
    answer = _run(study, given)
    if "error" not in answer:
        write_cached(cached, json.dumps(answer).encode())
    return answer


def _own_template(study: StudyConfig) -> str | None:
    """A template that the tokenizer does not have: what ``engine.extra_args.chat-template`` gives the server's chat
    endpoint, or the processor's.
    """
    given = own_flags(study).get("chat-template")
    if given is None:
        return processor_template(study)
    path = Path(str(given)).expanduser()
    try:
        if path.suffix == ".jinja":
            return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"engine.extra_args.chat-template: {path} cannot be read: {error}") from None
    raise WorkloadError(
        f"engine.extra_args.chat-template: {given} is one of SGLang's own templates or formats, which only its chat "
        "endpoint can render; give a .jinja file, or send plain prompts with workload.chat_template: false"
    )


def _run(study: StudyConfig, given: str) -> dict[str, Any]:
    command = [study.engine.python or sys.executable, render_chat.__file__]
    try:
        done = subprocess.run(
            command,
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            env={**asking_environment(study), "TOKENIZERS_PARALLELISM": "false", "PYTHONIOENCODING": "utf-8"},
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotRenderHereError(
            f"engine.python: {command[0]} cannot render the prompts: {error}"
        ) from None
    except ValueError:
        last = last_words(done.stderr, launch_environment(study))
        raise CannotRenderHereError(
            f"engine.python: {command[0]} cannot render the prompts: {last}"
        ) from None


def _cache_file(study: StudyConfig, given: str) -> Path:
    search_path = launch_environment(study).get("PYTHONPATH")
    try:
        version = installed_version(study.engine.python, search_path)
    except SweeperError:  # rendering needs only its Transformers
        version = ""
    script = Path(render_chat.__file__).read_text("utf-8")
    tokenizer = json.dumps(identity(study))
    interpreter = study.engine.python or sys.executable
    return cached_answer("rendered", interpreter, version, search_path or "", script, given, tokenizer)
