"""Every shape that prompts come in becomes the same conversation, and what cannot be sent is named with its line."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.workload.conversation import Conversation, Message, WorkloadError
from sweeper.workload.rows import Row, conversation


def read(data: Any, shape: str = "auto") -> Conversation:
    found = conversation(Row(7, "p.jsonl:7", data, shape))
    assert found is not None
    return found


def user(text: str) -> Message:
    return Message("user", text)


def says(role: str, content: object) -> dict[str, object]:
    return {"role": role, "content": content}


@pytest.mark.parametrize("data", [{"prompt": "Why?"}, {"text": "Why?"}])
def test_a_text_is_plain(data: dict[str, str]) -> None:
    assert read(data) == Conversation("7", ((user("Why?"),),), True, "p.jsonl:7")


@pytest.mark.parametrize(
    "data",
    [
        {"messages": [says("user", "Why?")]},
        {"messages": [says("user", "Why?"), says("assistant", "So.")]},
        {"messages": [says("user", [{"type": "text", "text": "Why?"}])]},
        {"prompt": [says("user", "Why?")]},
        {"turns": ["Why?"]},
        {"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "So."}]},
        {"conversations": [says("user", "Why?"), says("assistant", "So.")]},
        {"body": {"messages": [says("user", "Why?")], "model": "m"}, "method": "POST"},
    ],
)
def test_a_question_in_any_shape_is_one_turn(data: dict[str, Any]) -> None:
    assert read(data) == Conversation("7", ((user("Why?"),),), False, "p.jsonl:7")


def test_text_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "input_text", "text": "two"}, "three"]
    assert read({"messages": [says("user", parts)]}).turns == ((user("one two three"),),)


def test_each_question_of_a_transcript_is_a_turn_and_its_replies_are_the_servers_own() -> None:
    messages = [says("system", "Be brief."), says("user", "A?"), says("assistant", "a"), says("user", "B?")]
    ended = read({"messages": [*messages, says("assistant", "b")]})
    assert ended.turns == ((Message("system", "Be brief."), user("A?")), (user("B?"),))
    sharegpt = [{"from": m["role"], "value": m["content"]} for m in messages]
    assert read({"conversations": sharegpt}).turns == ended.turns


def test_a_logged_request_keeps_the_replies_it_was_sent_with() -> None:
    messages = [says("user", "A?"), says("assistant", "a"), says("user", "B?")]
    assert read({"messages": messages}).turns == ((user("A?"), Message("assistant", "a"), user("B?")),)


def test_turns_follow_each_other() -> None:
    assert read({"question_id": 81, "turns": ["A?", "B?"]}).turns == ((user("A?"),), (user("B?"),))


@pytest.mark.parametrize("key", ["id", "question_id", "custom_id", "task_id"])
def test_the_id_may_have_any_usual_name(key: str) -> None:
    assert read({key: 0, "prompt": "x"}).id == "0"
    assert read({key: None, "prompt": "x"}).id == "7"


def test_the_first_of_several_shapes_counts_unless_the_study_names_another() -> None:
    data = {"prompt": "x", "messages": [says("user", "y")]}
    assert read(data).turns == ((user("y"),),)
    assert read(data, "prompt").turns == ((user("x"),),)


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"from": "gpt", "value": "an answer to nothing"}],
        [{"from": "system", "value": "Be brief."}],
        [{"from": "human", "value": " "}, {"from": "gpt", "value": "hm"}],
    ],
)
def test_a_sharegpt_row_without_a_question_is_left_out(messages: list[dict[str, str]]) -> None:
    assert conversation(Row(1, "s.json:1", {"conversations": messages})) is None


def test_a_sharegpt_piece_begins_with_its_first_question() -> None:
    messages = [
        ("gpt", "so"),
        ("human", "A?"),
        ("gpt", "a"),
        ("gpt", "more"),
        ("human", "B?"),
        ("system", "bye"),
    ]
    found = read({"conversations": [{"from": role, "value": text} for role, text in messages]})
    assert found.turns == ((user("A?"),), (user("B?"), Message("system", "bye")))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (["x"], "a row is an object such as"),
        ("x", "not a text"),
        ({"question": "x"}, "needs 'messages' or .* but has question; rename the key"),
        ({}, "no key at all"),
        ({"prompt": " "}, "'prompt' must hold a non-empty text, not an empty text"),
        ({"prompt": 5}, "not 5"),
        ({"prompt": None}, "needs 'messages'"),
        ({"prompt": ["a", "b"]}, "non-empty text, not a list"),
        ({"prompt": [1, 2, 3]}, "token ids are no workload: what is accepted of random tokens"),
        ({"prompt": [[1, 2], [3]]}, "token ids are no workload"),
        ({"input_ids": [1, 2]}, "token ids are no workload"),
        ({"prompt_token_ids": [1, 2]}, "token ids are no workload"),
        ({"turns": []}, "'turns' must be a list with at least one item, not an empty list"),
        ({"turns": "x"}, "not a text"),
        ({"turns": ["x", ""]}, "non-empty text"),
        ({"messages": ["x"]}, 'message 1 of .messages. must be an object with "role"'),
        ({"messages": [says("user", "")]}, r"message 1 of 'messages' \(user\) is empty"),
        ({"messages": [says("system", "x")]}, "no message of the user"),
        (
            {"messages": [says("assistant", "x"), says("user", "y"), says("assistant", "")]},
            "message 3 .* is empty",
        ),
        ({"messages": [says("user", None)]}, "content must be a text or a list of text parts, not null"),
        ({"messages": [says("user", [{"type": "image_url"}])]}, "type 'image_url'; only text can be sent"),
        ({"messages": [says("tool", "x")]}, "role 'tool'; only texts of system"),
        ({"messages": [{**says("assistant", ""), "tool_calls": [{}]}]}, "'assistant' with tool calls"),
        ({"messages": [says("user", "x")], "tools": [{}]}, "tool definitions are not rendered"),
        ({"conversations": "x"}, "must be a list"),
        ({"conversations": ["x"]}, "message 1 of 'conversations' is no object"),
        ({"conversations": [{"from": "observation", "value": "x"}]}, "it has from 'observation' and a text"),
        ({"conversations": [{"from": "human", "value": None}]}, "it has from 'human' and null"),
    ],
)
def test_what_cannot_be_sent_is_named(data: object, said: str) -> None:
    with pytest.raises(WorkloadError, match=f"^p.jsonl:7: .*{said}"):
        conversation(Row(7, "p.jsonl:7", data))
