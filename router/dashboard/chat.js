// The chat box: a conversation with the model, its thinking and its tool calls told apart from its answers.

import { byId, element, setText } from "./elements.js";
import { time } from "./figures.js";
import { getJson, postForEvents } from "./server.js";

let model = null; // the one that is served
let messages = [];
let unanswered = []; // tool calls whose results are to be typed
let running = null; // AbortController

// One message of the model, as it grows.
class Answer {
  message = { role: "assistant", content: null };
  reasoning = "";
  #texts = new Map();
  #box;
  #began = performance.now();
  #first = null;
  #end = "";
  #usage = null;
  #id = "";

  constructor(box) {
    this.#box = box;
  }

  #textIn(name, label) {
    if (!this.#texts.has(name)) {
      const text = document.createTextNode("");
      const pre = element("pre", { class: name }, text);
      const part = label === "" ? pre : element("details", { open: "", class: `part ${name}` }, element("summary", {}, label), pre);
      this.#box.append(part);
      this.#texts.set(name, text);
    }
    return this.#texts.get(name);
  }

  take(event) {
    if (event.error !== undefined) throw new Error(event.error.message);
    this.#id = event.id;
    this.#usage = event.usage ?? this.#usage;
    for (const choice of event.choices) this.#takeChoice(choice);
  }

  #takeChoice(choice) {
    const { delta } = choice;
    if (delta.reasoning_content || delta.content || delta.tool_calls) this.#first ??= performance.now();
    if (delta.reasoning_content) {
      this.reasoning += delta.reasoning_content;
      this.#textIn("thinking", "thinking").appendData(delta.reasoning_content);
    }
    if (delta.content) {
      this.message.content = (this.message.content ?? "") + delta.content;
      this.#textIn("answer", "").appendData(delta.content);
    }
    for (const call of delta.tool_calls ?? []) this.#takeCall(call);
    if (choice.finish_reason) this.#end = choice.finish_reason;
  }

  #takeCall(call) {
    const calls = (this.message.tool_calls ??= []);
    calls[call.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    const known = calls[call.index];
    known.id ||= call.id ?? "";
    known.function.name += call.function?.name ?? "";
    known.function.arguments += call.function?.arguments ?? "";
    this.#textIn(`call call-${call.index}`, `calls ${known.function.name}`).appendData(call.function?.arguments ?? "");
  }

  finish(error) {
    const took = performance.now() - this.#began;
    const tokens = this.#usage?.completion_tokens ?? 0;
    const first = this.#first === null ? "" : `, first token after ${time(this.#first - this.#began)}`;
    const words = error ?? this.#end;
    const note = element("p", { class: error === null ? "quiet" : "bad" }, `${words}: ${tokens} tokens in ${time(took)}${first} `);
    if (this.#id !== "") note.append(element("button", { type: "button", class: "link", "data-opens": this.#id }, "timeline"));
    this.#box.append(note);
    this.#box.dataset.end = error === null ? this.#end : "error";
  }
}

function show(role, text) {
  const box = element("div", { class: `message ${role}` }, element("b", {}, role));
  if (text !== null) box.append(element("pre", {}, text));
  byId("transcript").append(box);
  return box;
}

function showWhatIsAsked() {
  const call = unanswered[0];
  setText(byId("question-label"), call === undefined ? "Message" : `Result of ${call.function.name}`);
  byId("send").disabled = running !== null;
  byId("stop").disabled = running === null;
}

// The fields that the form adds; error where they are no object.
function furtherFields() {
  const text = byId("fields").value.trim();
  if (text === "") return {};
  const fields = JSON.parse(text);
  if (typeof fields !== "object" || fields === null || Array.isArray(fields)) throw new Error("must be a JSON object");
  return fields;
}

// undo: how the conversation was, so that what failed can be asked again.
async function ask(fields, undo) {
  running = new AbortController();
  showWhatIsAsked();
  const answer = new Answer(show("assistant", null));
  const asked = messages;
  let error = null;
  try {
    model ??= (await getJson("v1/models")).data[0].id;
    const body = requestBody(fields);
    for await (const event of postForEvents("v1/chat/completions", body, running.signal)) answer.take(event);
    if (answer.message.tool_calls !== undefined && answer.reasoning !== "") answer.message.reasoning_content = answer.reasoning;
    asked.push(answer.message);
    unanswered = [...(answer.message.tool_calls ?? [])];
  } catch (caught) {
    error = running.signal.aborted ? "stopped" : caught.message;
    if (messages === asked) ({ messages, unanswered } = undo);
  }
  answer.finish(error);
  running = null;
  showWhatIsAsked();
}

function requestBody(fields) {
  return {
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    max_tokens: Number(byId("max-tokens").value),
    chat_template_kwargs: { thinking: byId("thinking").checked },
    ...fields,
  };
}

async function send(event) {
  event.preventDefault();
  const text = byId("question").value;
  if (running !== null || (text.trim() === "" && unanswered.length === 0)) return;
  let fields;
  try {
    fields = furtherFields();
    setText(byId("chat-error"), "");
  } catch (error) {
    setText(byId("chat-error"), `further fields: ${error.message}`);
    return;
  }
  const undo = { messages: [...messages], unanswered: [...unanswered] };
  const call = unanswered.shift();
  messages.push(call === undefined ? { role: "user", content: text } : { role: "tool", tool_call_id: call.id, content: text });
  show(call === undefined ? "user" : "tool", text);
  byId("question").value = "";
  if (unanswered.length === 0) await ask(fields, undo);
  else showWhatIsAsked();
}

export function startChat() {
  byId("chat-form").addEventListener("submit", send);
  byId("stop").addEventListener("click", () => running?.abort());
  byId("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) byId("chat-form").requestSubmit();
  });
  byId("clear").addEventListener("click", () => {
    running?.abort();
    messages = [];
    unanswered = [];
    byId("transcript").replaceChildren();
    showWhatIsAsked();
  });
}
