// Tiles, workers and pairs.

import { byId, element, fillTable, setText, svgElement } from "./elements.js";
import { Line, NONE, acceptLength, bytes, number, percent, quantile, rate, share, time } from "./figures.js";

const BAD_STATES = { down: "bad", ejected: "bad", draining: "odd", removed: "odd", up: "good" };

class Tile {
  #line = new Line();
  constructor(name) {
    this.value = element("b", {}, NONE);
    this.more = element("small");
    this.picture = svgElement("polyline");
    const picture = svgElement("svg", { viewBox: "0 0 100 20", preserveAspectRatio: "none", "aria-hidden": "true" });
    picture.append(this.picture);
    byId("tiles").append(element("div", { class: "tile", "data-tile": name }, element("span", {}, name), this.value, this.more, picture));
  }
  show(value, text, more = "") {
    setText(this.value, text);
    setText(this.more, more);
    this.#line.add(value);
    this.picture.setAttribute("points", this.#line.points());
  }
}

const NAMES = [
  "in flight", "in line", "first token", "between tokens", "generated tokens/s", "prompt tokens/s", "failed in a minute",
  "KV pages in use", "KV moved/s", "prefix hits", "MTP tokens a step", "HiSparse hits",
];
let tiles = null;

function sum(counters, isCounted) {
  return Object.entries(counters.requests_by_status)
    .filter(([status]) => isCounted(Number(status)))
    .reduce((total, [, count]) => total + count, 0);
}

function showLatency(tile, histogram, before, after) {
  const [p50, p99] = [0.5, 0.99].map((q) => quantile(histogram.bounds_s, before, after, q));
  const ms = (seconds) => (seconds === null ? null : seconds * 1000);
  tile.show(ms(p50), p50 === null ? NONE : `\u2264 ${time(ms(p50))}`, p50 === null ? "nothing came" : `P99 \u2264 ${time(ms(p99))}`);
}

export function showTiles(state, history) {
  tiles ??= Object.fromEntries(NAMES.map((name) => [name, new Tile(name)]));
  const [first, last] = history.minute();
  const elapsed = last.at - first.at;
  const requests = state.requests;
  const { prefill, decode } = last.totals;
  const before = first.totals;
  tiles["in flight"].show(requests.in_flight, number(requests.in_flight), `of ${number(requests.in_flight_max)}`);
  tiles["in line"].show(requests.in_line, number(requests.in_line), `of ${number(requests.in_line_max)}`);
  showLatency(tiles["first token"], state.time_to_first_token, first.ttft, last.ttft);
  showLatency(tiles["between tokens"], state.inter_token_latency, first.itl, last.itl);
  for (const [tile, name] of [["generated tokens/s", "generated_tokens"], ["prompt tokens/s", "prompt_tokens"]]) {
    const value = rate(first.counters[name], last.counters[name], elapsed);
    tiles[tile].show(value, number(value, 1));
  }
  const failed = sum(last.counters, (code) => code >= 500) - sum(first.counters, (code) => code >= 500);
  const refused = sum(last.counters, (code) => code === 429) - sum(first.counters, (code) => code === 429);
  const all = sum(last.counters, () => true) - sum(first.counters, () => true);
  tiles["failed in a minute"].show(failed, number(failed), `${refused} refused (429), of ${all}`);
  const used = (role) => (role.kv_pages > 0 ? role.kv_pages_used / role.kv_pages : null);
  tiles["KV pages in use"].show(used(decode), `${percent(used(decode))}`, `decode; prefill ${percent(used(prefill))}`);
  const moved = rate(before.decode.transferred_kv_bytes, decode.transferred_kv_bytes, elapsed);
  tiles["KV moved/s"].show(moved, bytes(moved), "from prefill to decode");
  const hits = share(before.prefill, prefill, "cached_prompt_tokens", "prompt_tokens");
  tiles["prefix hits"].show(hits, percent(hits), "of prompt tokens");
  const accepted = acceptLength(before.decode, decode);
  tiles["MTP tokens a step"].show(accepted, accepted === null ? "off" : number(accepted, 2));
  const onDevice = share(before.decode, decode, "hisparse_hits", "hisparse_misses");
  tiles["HiSparse hits"].show(onDevice, onDevice === null ? "off" : percent(onDevice));
}

function workerCells(worker, before, elapsed) {
  const was = before ?? worker;
  const isDecode = worker.role === "decode";
  const tokens = isDecode ? "generated_tokens" : "prompt_tokens";
  const used = worker.kv_pages > 0 ? worker.kv_pages_used / worker.kv_pages : 0;
  const hits = isDecode ? null : share(was, worker, "cached_prompt_tokens", "prompt_tokens");
  const onDevice = worker.device_pages > 0 ? share(was, worker, "hisparse_hits", "hisparse_misses") : null;
  const isThere = worker.state !== "down"; // else its figures are what it told last
  const told = (text) => (isThere ? text : NONE);
  return [
    worker.role,
    `${worker.instance} ${worker.address}`,
    { text: worker.why === "" ? worker.state : `${worker.state}: ${worker.why}`, name: BAD_STATES[worker.state] },
    number(worker.in_flight),
    told(number(worker.running)),
    told(number(worker.waiting)),
    told(number(worker.waiting_tokens)),
    { text: told(`${worker.kv_pages_used} of ${worker.kv_pages}`), share: isThere ? used : 0 },
    told(number(rate(was[tokens], worker[tokens], elapsed), 1)),
    told(percent(hits)),
    told(bytes(rate(was.transferred_kv_bytes, worker.transferred_kv_bytes, elapsed))),
    told(number(acceptLength(was, worker), 2)),
    told(percent(onDevice)),
    { text: number(worker.usable_peers), name: worker.state === "up" && worker.usable_peers === 0 ? "bad" : "" },
  ];
}

const keyOf = (worker) => `${worker.role} ${worker.address}`;

export function showWorkers(state, history) {
  const [first, last] = history.recent();
  const before = new Map(first.state.workers.map((worker) => [keyOf(worker), worker]));
  const counts = (role) => {
    const pool = state.workers.filter((worker) => worker.role === role);
    return `${pool.filter((worker) => worker.state === "up").length} of ${pool.length} ${role} up`;
  };
  const hidden = state.workers_total - state.workers.length;
  setText(byId("pools-note"), `${counts("prefill")}, ${counts("decode")}${hidden > 0 ? `, ${hidden} more not shown` : ""}`);
  fillTable(byId("workers"), state.workers, keyOf,
            (worker) => workerCells(worker, before.get(keyOf(worker)), last.at - first.at), "no workers are listed");
}

export function showPairs(state) {
  const hidden = state.pairs_total - state.pairs.length;
  setText(byId("pairs-note"), `${state.usable_pairs} of ${state.pairs_total} usable${hidden > 0 ? `; ${hidden} more not shown` : ""}`);
  fillTable(byId("pairs"), state.pairs, (pair) => `${pair.prefill} ${pair.decode}`, (pair) => [
    pair.prefill,
    pair.decode,
    { text: pair.is_usable ? "usable" : "not usable", name: pair.is_usable ? "good" : "bad" },
    pair.lane,
    pair.lane_bytes_per_second > 0 ? `${bytes(pair.lane_bytes_per_second)}/s` : NONE,
    pair.why,
  ], "no pairs");
}
