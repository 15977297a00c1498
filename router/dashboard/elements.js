// Makes and changes what is shown. Text goes in as text alone, never as markup: what models, clients and workers say
// passes through here.

const SVG = "http://www.w3.org/2000/svg";

// children: elements, or what is shown as text.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return made;
}

export function svgElement(tag, attributes = {}, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== "") made.append(text);
  return made;
}

export const byId = (id) => document.getElementById(id);

export function setText(target, text) {
  if (target.textContent !== text) target.textContent = text;
}

export function setClass(target, name) {
  if (target.className !== name) target.className = name;
}

// A share from 0 to 1 as a bar with its figure.
function fillBar(cell, share, text) {
  if (cell.firstElementChild?.tagName !== "METER") {
    cell.replaceChildren(element("meter", { min: 0, max: 1, high: 0.9, optimum: 0 }), element("span"));
  }
  cell.firstElementChild.value = share;
  setText(cell.lastElementChild, text);
}

// A text that opens something: button is what it opens.
function fillButton(cell, text, button) {
  if (cell.firstElementChild?.tagName !== "BUTTON") {
    cell.replaceChildren(element("button", { type: "button", class: "link" }));
  }
  setText(cell.firstElementChild, text);
  cell.firstElementChild.dataset.opens = button;
}

function fillCell(cell, content) {
  const told = typeof content === "string" ? { text: content } : content;
  setClass(cell, told.name ?? "");
  if (told.title !== undefined) cell.title = told.title;
  if (told.share !== undefined) return fillBar(cell, told.share, told.text);
  if (told.opens !== undefined) return fillButton(cell, told.text, told.opens);
  setText(cell, told.text);
}

// Rows of a table by their keys: a row keeps its elements, so that what is focused or selected stays so.
// cellsOf(item): texts, or {text, name (class), title, share (a bar), opens (a button)}.
export function fillTable(table, items, keyOf, cellsOf, nothing) {
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  const columns = table.tHead.rows[0].cells.length;
  const rows = items.map((item) => {
    const row = known.get(keyOf(item)) ?? element("tr", { "data-key": keyOf(item) });
    const cells = cellsOf(item);
    while (row.cells.length < cells.length) row.append(element("td"));
    cells.forEach((content, i) => fillCell(row.cells[i], content));
    return row;
  });
  if (rows.length === 0) rows.push(element("tr", {}, element("td", { colspan: columns, class: "quiet" }, nothing)));
  const isAsItWas = rows.length === body.rows.length && rows.every((row, i) => row === body.rows[i]);
  if (!isAsItWas) body.replaceChildren(...rows);
}

// What is clicked in container and opens something is told to open.
export function onOpen(container, open) {
  container.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-opens]");
    if (button !== null) open(button.dataset.opens);
  });
}
