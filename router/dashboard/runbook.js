// Sections of the runbook, docs/operations.md as the router has it: what it says is shown as text.

import { byId, element, onOpen, setText } from "./elements.js";
import { get } from "./server.js";

let sections = null; // anchor -> {heading, lines}

// As the renderers of Markdown make anchors.
const anchorOf = (heading) => heading.toLowerCase().replace(/[^\w\- ]/g, "").replaceAll(" ", "-");

function parse(markdown) {
  const found = new Map();
  let section = null;
  for (const line of markdown.split("\n")) {
    const heading = /^#+ (.*)$/.exec(line)?.[1];
    if (heading === undefined) section?.lines.push(line);
    else found.set(anchorOf(heading), (section = { heading: heading.replaceAll("`", "").replaceAll("*", ""), lines: [] }));
  }
  return found;
}

// `code`, [links](#to sections), **strong words**, *words of others* and text.
function* inline(text) {
  for (const part of text.split(/(`[^`]+`|\[[^\]]+\]\([^)]+\)|\*\*[^*]+\*\*|\*[^*]+\*)/)) {
    const link = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part);
    if (part.startsWith("`")) yield element("code", {}, part.slice(1, -1));
    else if (/^\*\*.+\*\*$/.test(part)) yield element("b", {}, part.slice(2, -2));
    else if (/^\*.+\*$/.test(part)) yield element("em", {}, part.slice(1, -1));
    else if (link !== null && link[2].startsWith("#")) {
      yield element("button", { type: "button", class: "link", "data-opens": link[2].slice(1) }, link[1]);
    } else yield link === null ? part : `${link[1]} (${link[2]})`;
  }
}

function* blocks(lines) {
  let list = null;
  for (const line of lines) {
    const item = /^(?:- |\d+\. )(.*)$/.exec(line)?.[1];
    if (item !== undefined) {
      if (list === null) yield (list = element("ul"));
      list.append(element("li", {}, ...inline(item)));
      continue;
    }
    list = null;
    if (line.trim() !== "") yield element("p", {}, ...inline(line));
  }
}

export async function openRunbook(anchor) {
  const dialog = byId("runbook");
  const text = byId("runbook-text");
  setText(byId("runbook-title"), "Runbook");
  text.replaceChildren("...");
  if (!dialog.open) dialog.showModal();
  try {
    sections ??= parse(await (await get("dashboard/operations.md")).text());
  } catch (error) {
    text.replaceChildren(`the runbook cannot be read: ${error.message}`);
    return;
  }
  const section = sections.get(anchor);
  setText(byId("runbook-title"), section?.heading ?? "Runbook");
  text.replaceChildren(...(section === undefined ? [`there is no section ${anchor}`] : blocks(section.lines)));
}

export function startRunbook() {
  onOpen(byId("runbook-text"), openRunbook);
}
