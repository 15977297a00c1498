// Streams, slow and failed requests, and the timeline of one.

import { byId, fillTable, setText, svgElement } from "./elements.js";
import { NONE, number, time } from "./figures.js";
import { getJson } from "./server.js";

const PLACES = ["router", "decode", "prefill", "transfer"];
const WIDTH = 1000;
const LABELS = 90; // of the width
const TRACK = 22;

const openable = (id) => ({ text: id, opens: id });

export function showStreams(state) {
  const all = state.requests.in_flight + state.requests.in_line;
  setText(byId("streams-note"), all > state.streams.length ? `the oldest ${state.streams.length} of ${number(all)}` : "");
  fillTable(byId("streams"), state.streams, (stream) => stream.id, (stream) => [
    openable(stream.id),
    time(stream.age_ms),
    stream.state,
    number(stream.prompt_tokens),
    number(stream.generated),
    stream.pair,
  ], "no request is under way");
}

function slowCells(request) {
  const isBad = request.status >= 500;
  return [
    openable(request.id),
    { text: new Date(request.began).toLocaleTimeString(), title: request.began },
    { text: String(request.status), name: isBad ? "bad" : "" },
    time(request.longest_wait_ms),
    time(request.took_ms),
    number(request.prompt_tokens),
    number(request.completion_tokens),
    request.error ?? request.finish ?? NONE,
  ];
}

export function showSlow(state) {
  const failed = new Set(state.failed.map((request) => request.id));
  const requests = [...state.failed, ...state.slow.filter((request) => !failed.has(request.id))];
  fillTable(byId("slow"), requests, (request) => `${request.id} ${request.began}`, slowCells, "none has ended yet");
}

// A track for each place and prompt, a bar or a mark for each event.
function picture(timeline) {
  const tracks = [];
  for (const event of timeline.events) {
    const name = event.prompt === 0 ? event.place : `${event.place} ${event.prompt}`;
    if (!tracks.some((track) => track.name === name)) tracks.push({ name, place: event.place, prompt: event.prompt });
  }
  tracks.sort((a, b) => a.prompt - b.prompt || PLACES.indexOf(a.place) - PLACES.indexOf(b.place));
  const end = Math.max(timeline.took_ms, 0.001, ...timeline.events.map((event) => event.at_ms + event.took_ms));
  const x = (ms) => LABELS + (ms / end) * (WIDTH - LABELS - 10);
  const drawn = svgElement("svg", { viewBox: `0 0 ${WIDTH} ${(tracks.length + 1) * TRACK}`, role: "img" });
  tracks.forEach((track, i) => {
    drawn.append(svgElement("text", { x: 0, y: i * TRACK + 15 }, track.name));
    for (const event of timeline.events) {
      if (event.place !== track.place || event.prompt !== track.prompt) continue;
      const width = Math.max((event.took_ms / end) * (WIDTH - LABELS - 10), 2);
      const bar = svgElement("rect", { x: x(event.at_ms), y: i * TRACK + 3, width, height: TRACK - 6, class: track.place });
      bar.append(svgElement("title", {}, `${event.name}: at ${time(event.at_ms)}, took ${time(event.took_ms)}. ${event.detail}`));
      drawn.append(bar);
    }
  });
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const anchor = part === 0 ? "start" : part === 1 ? "end" : "middle";
    drawn.append(svgElement("text", { x: x(part * end), y: (tracks.length + 1) * TRACK - 5, "text-anchor": anchor }, time(part * end)));
  }
  return drawn;
}

export async function openTimeline(id) {
  const dialog = byId("timeline");
  setText(byId("timeline-title"), id);
  setText(byId("timeline-summary"), "...");
  byId("timeline-picture").replaceChildren();
  fillTable(byId("timeline-events"), [], () => "", () => [], "");
  if (!dialog.open) dialog.showModal();
  let timeline;
  try {
    timeline = await getJson(`debug/requests/${encodeURIComponent(id)}`);
  } catch (error) {
    setText(byId("timeline-summary"), error.message);
    return;
  }
  const end = timeline.status === null ? "still runs" : `ended with ${timeline.status} (${timeline.error ?? timeline.finish})`;
  setText(byId("timeline-summary"),
          `${end}, took ${time(timeline.took_ms)}; ${timeline.prompt_tokens} prompt tokens, ${timeline.completion_tokens} generated; ` +
          `longest wait for a token ${time(timeline.longest_wait_ms)}; trace ${timeline.traceparent ?? NONE}` +
          (timeline.dropped_events > 0 ? `; ${timeline.dropped_events} further events were not kept` : ""));
  if (timeline.events.length > 0) byId("timeline-picture").replaceChildren(picture(timeline));
  let row = 0;
  fillTable(byId("timeline-events"), timeline.events, () => String(row++), (event) => [
    time(event.at_ms),
    event.took_ms > 0 ? time(event.took_ms) : NONE,
    event.prompt === 0 ? event.place : `${event.place}, prompt ${event.prompt}`,
    event.name,
    event.detail,
  ], "no events");
}
