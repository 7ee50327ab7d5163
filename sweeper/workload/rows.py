"""One row of a prompt file, in whichever shape people keep their prompts, as a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sweeper.workload.conversation import Conversation, Message, Turn, WorkloadError

SHAPES = {
    "messages": "messages",
    "conversations": "sharegpt",
    "turns": "turns",
    "prompt": "prompt",
    "text": "text",
}
"""The key that holds the prompt -> the shape's name in ``workload.format``. Of several keys the first counts."""

_ID_KEYS = ("id", "question_id", "custom_id", "prompt_id", "task_id", "unique_id", "conversation_id", "uuid")
_TOKEN_ID_KEYS = ("input_ids", "prompt_token_ids", "token_ids", "prompt_ids")
_SHAREGPT_ROLES = {
    **dict.fromkeys(("human", "user"), "user"),
    **dict.fromkeys(("gpt", "assistant", "chatgpt", "bing", "bard", "model"), "assistant"),
    "system": "system",
}
_ROLES = ("system", "developer", "user", "assistant")

TOKEN_IDS = (
    "token ids are no workload: what is accepted of random tokens says nothing about real traffic, and ids fit "
    "only one tokenizer; give the text"
)


@dataclass(frozen=True)
class Row:
    """``number`` becomes the id of a row without one; ``shape`` is ``auto`` or a value of SHAPES."""

    number: int
    where: str
    data: Any
    shape: str = "auto"


def conversation(row: Row) -> Conversation | None:
    """A row as a conversation; None where a ShareGPT dump has a row without a question.

    Raises:
        WorkloadError: the row has no known shape, says nothing, or holds what cannot be sent as text.
    """
    data = row.data
    if not isinstance(data, Mapping):
        raise WorkloadError(f'{row.where}: a row is an object such as {{"prompt": "..."}}, not {_kind(data)}')
    if isinstance(data.get("body"), Mapping):  # a line of an OpenAI batch file
        data = {**data["body"], **{key: value for key, value in data.items() if key in _ID_KEYS}}
    if data.get("tools") or data.get("functions"):
        raise WorkloadError(f"{row.where}: tool definitions are not rendered; give prompts without tools")
    key = _key(row, data)
    turns, plain = _turns(row, key, data[key])
    if turns is None:
        return None
    given = (data.get(name) for name in _ID_KEYS)
    name = next(
        (value for value in given if isinstance(value, (str, int)) and str(value).strip()), row.number
    )
    return Conversation(str(name), turns, plain, row.where)


def _key(row: Row, data: Mapping[str, Any]) -> str:
    """The key that holds the prompt."""
    wanted = [key for key, shape in SHAPES.items() if row.shape in ("auto", shape)]
    found = next((key for key in wanted if data.get(key) is not None), None)
    if found:
        return found
    if any(key in data for key in _TOKEN_ID_KEYS):
        raise WorkloadError(f"{row.where}: {TOKEN_IDS}")
    have = ", ".join(map(str, data)) or "no key at all"
    raise WorkloadError(
        f"{row.where}: needs {' or '.join(map(repr, wanted))}, but has {have}; rename the key or set workload.format"
    )


def _turns(row: Row, key: str, value: Any) -> tuple[tuple[Turn, ...] | None, bool]:
    """The turns, and whether they are a plain text."""
    if key == "conversations":
        return _transcript(_sharegpt(row, value)), False
    if key == "turns":
        texts = [_text(row, key, item) for item in _list(row, key, value)]
        return tuple((Message("user", text),) for text in texts), False
    if key == "messages" or (
        isinstance(value, list) and all(isinstance(item, Mapping) for item in value) and value
    ):
        return _openai(row, key, value), False
    return ((Message("user", _text(row, key, value)),),), True


def _openai(row: Row, key: str, value: Any) -> tuple[Turn, ...]:
    """A request as it was sent (ends with the user: one turn), or a transcript (ends with a reply: all its turns)."""
    messages = [_message(row, key, n, item) for n, item in enumerate(_list(row, key, value), start=1)]
    messages = [
        message for message in messages if message.content.strip() or message.role in ("user", "assistant")
    ]
    for n, message in enumerate(messages, start=1):
        if not message.content.strip():
            raise WorkloadError(f"{row.where}: message {n} of {key!r} ({message.role}) is empty")
    if not any(message.role == "user" for message in messages):
        raise WorkloadError(f"{row.where}: {key!r} has no message of the user")
    if messages[-1].role != "assistant":
        return (tuple(messages),)
    turns = _transcript(messages)
    if turns is None:
        raise WorkloadError(f"{row.where}: {key!r} has no message of the user before a reply")
    return turns


def _message(row: Row, key: str, number: int, item: Any) -> Message:
    where = f"{row.where}: message {number} of {key!r}"
    if not isinstance(item, Mapping) or not isinstance(item.get("role"), str):
        raise WorkloadError(f'{where} must be an object with "role" and "content"')
    if item["role"] not in _ROLES or item.get("tool_calls") or item.get("function_call"):
        raise WorkloadError(
            f"{where} has role {item['role']!r}{' with tool calls' if item['role'] in _ROLES else ''}; "
            f"only texts of {', '.join(_ROLES)} can be sent"
        )
    content = item.get("content")
    if isinstance(content, list):
        content = " ".join(_part(where, part) for part in content)  # as SGLang's chat endpoint joins them
    if not isinstance(content, str):
        raise WorkloadError(f"{where}: content must be a text or a list of text parts, not {_kind(content)}")
    return Message(item["role"], content)


def _part(where: str, part: Any) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else _kind(part)
    if kind not in ("text", "input_text") or not isinstance(part.get("text"), str):
        raise WorkloadError(f"{where} holds a part of type {kind!r}; only text can be sent")
    return str(part["text"])


def _sharegpt(row: Row, value: Any) -> list[Message]:
    """``from``/``value`` as in ShareGPT, or ``role``/``content`` as in SpecForge's training files."""
    messages = []
    for n, item in enumerate(_list(row, "conversations", value, empty=True), start=1):
        if not isinstance(item, Mapping):
            raise WorkloadError(f"{row.where}: message {n} of 'conversations' is no object")
        role, text = item.get("from", item.get("role")), item.get("value", item.get("content"))
        if role not in _SHAREGPT_ROLES or not isinstance(text, str):
            raise WorkloadError(
                f"{row.where}: message {n} of 'conversations' needs from ({', '.join(_SHAREGPT_ROLES)}) and value, "
                f"a text; it has from {role!r} and {_kind(text)}"
            )
        messages.append(Message(_SHAREGPT_ROLES[role], text))
    return messages


def _transcript(messages: Sequence[Message]) -> tuple[Turn, ...] | None:
    """What was said before each reply, without the replies: the server writes its own. None where nobody asks.

    A reply to nothing (dumps cut long conversations into pieces) and what follows the last question are dropped.
    """
    turns: list[Turn] = []
    said: list[Message] = []
    for message in messages:
        if message.role != "assistant":
            said.append(message)
        elif any(m.role == "user" for m in said):
            turns.append(tuple(said))
            said = []
    if any(m.role == "user" for m in said):
        turns.append(tuple(said))
    turns = [tuple(m for m in turn if m.content.strip() or m.role == "user") for turn in turns]
    blank = any(not message.content.strip() for turn in turns for message in turn)
    return None if blank or not turns else tuple(turns)


def _list(row: Row, key: str, value: Any, empty: bool = False) -> list[Any]:
    if not isinstance(value, list) or not (value or empty):
        raise WorkloadError(f"{row.where}: {key!r} must be a list with at least one item, not {_kind(value)}")
    return value


def _text(row: Row, key: str, value: Any) -> str:
    if isinstance(value, list) and value and all(isinstance(item, (int, list)) for item in value):
        raise WorkloadError(f"{row.where}: {TOKEN_IDS}")
    if not isinstance(value, str) or not value.strip():
        raise WorkloadError(f"{row.where}: {key!r} must hold a non-empty text, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    if isinstance(value, str):
        return "a text" if value.strip() else "an empty text"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    return {dict: "an object", type(None): "null", bool: "true or false"}.get(type(value), f"{value!r}"[:40])
