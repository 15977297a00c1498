"""DeepSeek-V3.2's chat encoding in Python, for training data and evaluation.

The router's encoder (router/chat) is the one that serves; chat_test.py holds this one to the same examples. The tools
preamble is data of the checkpoint (encoding/tools_preamble.txt), never code.
"""

import json
import pathlib

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
PAD = "<｜▁pad▁｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK = "<think>", "</think>"
DSML = "｜DSML｜"

# In the order of their ids: the first three at the start of the vocabulary, the rest after the merges.
SPECIAL_TOKENS = [BOS, EOS, PAD]
ADDED_TOKENS = [USER, ASSISTANT, THINK, END_THINK, DSML]

TOOLS_PREAMBLE = (pathlib.Path(__file__).parent / "tools_preamble.txt").read_text(encoding="utf-8")


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def render_tools(tools):
    return TOOLS_PREAMBLE + "\n".join(dump(tool) for tool in tools) + "\n</functions>\n"


def render_calls(calls):
    """calls: [(name, {key: value})] in order."""
    invokes = []
    for name, arguments in calls:
        parameters = "\n".join(
            f'<{DSML}parameter name="{key}" string="{"true" if isinstance(value, str) else "false"}">'
            f"{value if isinstance(value, str) else dump(value)}</{DSML}parameter>"
            for key, value in arguments.items())
        invokes.append(f'<{DSML}invoke name="{name}">\n{parameters}\n</{DSML}invoke>')
    return f"<{DSML}function_calls>\n" + "\n".join(invokes) + f"\n</{DSML}function_calls>"


def render(messages, thinking, tools=None):
    """The whole dialogue as text. messages: dicts with role (system, user, assistant, tool), content, and for assistants
    reasoning and calls. Ends with the last assistant's EOS, or open for generation where the last message is not one."""
    messages = [dict(message) for message in messages]
    if tools:
        if messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": ""})
        messages[0]["tools"] = tools
    last = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
    text = BOS
    results = 0  # tool results still to come of the last calls
    for i, message in enumerate(messages):
        content = message.get("content") or ""
        if message["role"] == "system":
            text += content
            if message.get("tools"):
                text += "\n\n" + render_tools(message["tools"])
        elif message["role"] == "user":
            text += USER + content + ASSISTANT + (THINK if thinking and i == last else END_THINK)
        elif message["role"] == "assistant":
            if thinking and i > last:
                text += (message.get("reasoning") or "") + END_THINK
            text += content
            if message.get("calls"):
                text += "\n\n" + render_calls(message["calls"])
            text += EOS
            results = expected = len(message.get("calls") or [])
        elif message["role"] == "tool":
            if results == expected:
                text += "\n\n<function_results>"
            text += f"\n<result>{content}</result>"
            results -= 1
            if results == 0:
                text += "\n</function_results>\n\n" + (THINK if thinking and i > last else END_THINK)
    return text
