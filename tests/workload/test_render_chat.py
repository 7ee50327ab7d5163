"""What a real tokenizer and chat template make of conversations; one byte is one token here, so counts are lengths."""

from __future__ import annotations

from typing import Any

import pytest

from sweeper.workload.conversation import History, Prompt
from sweeper.workload.render_chat import RenderError, Template, answer, differences
from tests.workload.conftest import CHATML, STRIPPING, THINKING, MakeTokenizer


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def ask(tokenizer: Any, *conversations: list[Any], render: bool = True, **asked: Any) -> dict[str, Any]:
    items = [{"turns": turns, "render": render} for turns in conversations]
    return answer({"template": None, "kwargs": {}, "conversations": items, **asked}, tokenizer)


def prompt(found: dict[str, Any]) -> Prompt:
    return Prompt("p", found["text"], tuple(found["follow_ups"]), None, History(**found["history"]))


def test_a_question_is_rendered_up_to_where_the_model_speaks(make_tokenizer: MakeTokenizer) -> None:
    found = ask(make_tokenizer(CHATML), [[{"role": "system", "content": "S"}, user("Hi")]])
    text = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    tokens = 5 + len("system\nS" + "\n" + "user\nHi" + "\n" + "assistant\n")
    assert found["prompts"] == [
        {"text": text, "follow_ups": [], "history": {}, "input_tokens": tokens, "all_tokens": tokens}
    ]
    assert found["notes"] == []


def test_raw_texts_are_only_counted(make_tokenizer: MakeTokenizer) -> None:
    found = ask(make_tokenizer(None), [[user("héllo")]], render=False)["prompts"][0]
    assert (found["text"], found["input_tokens"]) == ("héllo", 6)


@pytest.mark.parametrize(
    ("template", "kwargs"),
    [(CHATML, {}), (THINKING, {}), (THINKING, {"enable_thinking": False}), (STRIPPING, {})],
)
@pytest.mark.parametrize(
    "replies", [("a", "b"), (" a\n", "\nb"), ("<think>\nhm\n</think>\n\na", "<think>cut off")]
)
def test_a_continued_conversation_is_what_the_template_would_render(
    make_tokenizer: MakeTokenizer, template: str, kwargs: dict[str, Any], replies: tuple[str, str]
) -> None:
    tokenizer = make_tokenizer(template, adds_bos=template is STRIPPING)
    turns = [[{"role": "system", "content": "S"}, user("A?")], [user("B?")], [user(" C? ")]]
    found = prompt(ask(tokenizer, turns, kwargs=kwargs)["prompts"][0])
    messages: list[dict[str, str]] = []
    for number, turn in enumerate(turns):
        messages += [*([assistant(replies[number - 1])] if number else []), *turn]
        wanted = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **kwargs)
        assert found.turn(replies[:number]) == wanted.removeprefix("<s>")


def test_later_turns_count_too(make_tokenizer: MakeTokenizer) -> None:
    found = ask(make_tokenizer(CHATML), [[user("A?")], [user("B?")]])["prompts"][0]
    assert found["follow_ups"] == ["<|im_end|>\n<|im_start|>user\nB?<|im_end|>\n<|im_start|>assistant\n"]
    assert found["all_tokens"] - found["input_tokens"] == 4 + len("\n" + "user\nB?" + "\n" + "assistant\n")


def test_the_server_adds_the_bos_token_that_a_template_already_has(make_tokenizer: MakeTokenizer) -> None:
    adding = make_tokenizer(STRIPPING, adds_bos=True)
    found = ask(adding, [[user("A?")]])
    sent = found["prompts"][0]["text"]
    assert sent == "[user]A?</s>[assistant]"
    wanted = adding.apply_chat_template(
        [user("A?")], tokenize=True, add_generation_prompt=True, return_dict=False
    )
    assert adding(sent)["input_ids"] == wanted
    assert found["prompts"][0]["input_tokens"] == len(wanted)
    assert found["notes"] == []


def test_a_bos_token_that_the_tokenizer_does_not_add_stays(make_tokenizer: MakeTokenizer) -> None:
    found = ask(make_tokenizer(STRIPPING), [[user("A?")]])
    assert found["prompts"][0]["text"] == "<s>[user]A?</s>[assistant]"
    assert found["notes"] == []


def test_a_bos_token_that_the_template_does_not_have_is_told(make_tokenizer: MakeTokenizer) -> None:
    found = ask(make_tokenizer(CHATML, adds_bos=True), [[user("A?")]])
    assert found["notes"] == ["the tokenizer puts <s> before every prompt, which the chat template does not"]


def test_tokens_that_have_no_text_are_refused(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(CHATML)
    assert differences(tokenizer, [1, 2], [1, 2]) == ""
    assert "puts </s> after every prompt" in differences(tokenizer, [1, 2, 257], [1, 2])
    with pytest.raises(RenderError, match="tokens that no text has"):
        differences(tokenizer, [1, 2, 3], [1, 9, 3])


def test_arguments_reach_the_template_and_unread_ones_are_told(make_tokenizer: MakeTokenizer) -> None:
    tokenizer = make_tokenizer(THINKING)
    found = ask(tokenizer, [[user("A?")]], kwargs={"enable_thinking": False, "enable_thought": True})
    assert found["prompts"][0]["text"].endswith("assistant\n<think>\n\n</think>\n\n")
    assert found["notes"] == [
        "workload.chat_template_kwargs.enable_thought: the target's chat template never reads it"
    ]
    assert ask(tokenizer, [[user("A?")]])["prompts"][0]["text"].endswith("assistant\n")


def test_a_template_of_the_study_replaces_the_tokenizers(make_tokenizer: MakeTokenizer) -> None:
    found = ask(
        make_tokenizer(None), [[user("A?")]], template="{% for m in messages %}<{{ m.content }}>{% endfor %}"
    )
    assert found["prompts"][0]["text"] == "<A?>"


def test_a_template_that_wants_content_in_parts_gets_them(make_tokenizer: MakeTokenizer) -> None:
    parts = (
        "{% for m in messages %}{% for p in m.content %}"
        "{% if p.type == 'text' %}({{ p.text }}){% endif %}{% endfor %}{% endfor %}"
    )
    assert ask(make_tokenizer(parts), [[user("A?")]])["prompts"][0]["text"] == "(A?)"


def test_without_a_usable_template_nothing_is_rendered(make_tokenizer: MakeTokenizer) -> None:
    with pytest.raises(RenderError, match="the target has no chat template"):
        Template(make_tokenizer(None), None, {})
    with pytest.raises(RenderError, match="does not show what a user says: a user's text is not in"):
        Template(make_tokenizer("nothing"), None, {})
    with pytest.raises(RenderError, match="does not show what a user says: TemplateSyntaxError"):
        Template(make_tokenizer("{% if %}"), None, {})


REFUSING = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ m.content }}{% endfor %}"
)
LAST_ONLY = "{{ messages[-1].content }}"
NUMBERED = "{{ messages | length }} messages{% for m in messages %}\n{{ m.content }}{% endfor %}\n"


@pytest.mark.parametrize(
    ("template", "turns", "said"),
    [
        (
            REFUSING,
            [[{"role": "system", "content": "S"}, user("A?")]],
            "the chat template refuses it: .*no system role",
        ),
        (LAST_ONLY, [[user("A?")], [user("B?")]], "drops or repeats a conversation's replies, so that"),
        (NUMBERED, [[user("A?")], [user("B?")]], "rewrites a conversation that goes on"),
        (CHATML, [[user("SWEEPERREPLY0001X")]], "stands for replies here"),
    ],
)
def test_a_conversation_that_a_template_cannot_take_is_named(
    make_tokenizer: MakeTokenizer, template: str, turns: list[Any], said: str
) -> None:
    with pytest.raises(RenderError, match=said) as refused:
        ask(make_tokenizer(template), [[user("fine")]], turns)
    assert refused.value.index == 1
