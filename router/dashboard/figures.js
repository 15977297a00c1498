// Rates and quantiles from counters that were read a while apart, and how figures are written.

const RECENT_MS = 10000; // of workers' rates
const MINUTE_MS = 60000; // of the tiles
const SLACK_MS = 2000; // samples are a second apart, as a rule
const POINTS_MAX = 120; // of a line

// What was read lately: whole states for RECENT_MS, the small parts for MINUTE_MS. What is older, since nobody looked
// meanwhile, and what another router said or this one before it started anew, is not compared with.
export class History {
  #recent = [];
  #minute = [];

  add(state, at) {
    if (this.#isAnother(state)) [this.#recent, this.#minute] = [[], []];
    this.#recent.push({ at, state });
    this.#minute.push({
      at,
      counters: state.counters,
      ttft: state.time_to_first_token.counts,
      itl: state.inter_token_latency.counts,
      totals: totalsOf(state.workers),
    });
    trim(this.#recent, at - RECENT_MS);
    trim(this.#minute, at - MINUTE_MS);
  }

  #isAnother(state) {
    if (this.#recent.length === 0) return false;
    const last = this.#recent.at(-1).state;
    const restarted = (name) => state[name].counts.at(-1) < last[name].counts.at(-1);
    return state.instance !== last.instance || restarted("time_to_first_token") ||
      state.counters.prompt_tokens < last.counters.prompt_tokens;
  }

  // The oldest and the newest of the last ten seconds: [{at, state}, {at, state}].
  recent() {
    return [this.#recent[0], this.#recent.at(-1)];
  }

  minute() {
    return [this.#minute[0], this.#minute.at(-1)];
  }
}

function trim(samples, from) {
  while (samples[0].at < from - SLACK_MS) samples.shift();
}

const SUMMED = [
  "prompt_tokens", "cached_prompt_tokens", "generated_tokens", "transferred_kv_bytes", "spec_windows",
  "spec_accepted_tokens", "hisparse_hits", "hisparse_misses", "kv_pages_used", "kv_pages", "device_pages",
];

// Sums over the workers of each role.
export function totalsOf(workers) {
  const totals = { prefill: {}, decode: {} };
  for (const role of ["prefill", "decode"]) for (const name of SUMMED) totals[role][name] = 0;
  for (const worker of workers) for (const name of SUMMED) totals[worker.role][name] += worker[name];
  return totals;
}

// A worker that has started anew counts from 0: then there is no rate for a while.
export function rate(before, after, elapsedMs) {
  return elapsedMs > 0 && after >= before ? ((after - before) * 1000) / elapsedMs : null;
}

// part of (part + rest) of what has come in between; of all since the start where nothing has.
export function share(before, after, part, rest) {
  let parts = after[part] - before[part];
  let all = parts + after[rest] - before[rest];
  if (all <= 0 || parts < 0) {
    parts = after[part];
    all = parts + after[rest];
  }
  return all > 0 ? parts / all : null;
}

// Tokens that a step of a sequence that drafts brings.
export function acceptLength(before, after) {
  const windows = after.spec_windows - before.spec_windows;
  if (windows > 0) return 1 + (after.spec_accepted_tokens - before.spec_accepted_tokens) / windows;
  return after.spec_windows > 0 ? 1 + after.spec_accepted_tokens / after.spec_windows : null;
}

// Of cumulative counts; the upper bound of the bucket, in seconds. null where nothing was counted in between.
export function quantile(bounds, before, after, q) {
  const counts = after.map((count, i) => count - before[i]);
  const all = counts.at(-1);
  if (all <= 0) return null;
  const place = counts.findIndex((count) => count >= q * all);
  return place < bounds.length ? bounds[place] : Infinity;
}

// The values of a tile, for its line.
export class Line {
  #values = [];
  add(value) {
    this.#values.push(value ?? 0);
    if (this.#values.length > POINTS_MAX) this.#values.shift();
  }
  // Points of a polyline in a box of 100 by 20.
  points() {
    const top = Math.max(...this.#values, 1e-9);
    return this.#values
      .map((value, i) => `${((i * 100) / (POINTS_MAX - 1)).toFixed(1)},${(20 - (19 * value) / top).toFixed(1)}`)
      .join(" ");
  }
}

export const NONE = "\u2013";

export function number(value, digits = 0) {
  if (value === null) return NONE;
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value.toFixed(value >= 100 ? 0 : digits);
}

export const percent = (value) => (value === null ? NONE : `${(100 * value).toFixed(value >= 0.1 || value === 0 ? 0 : 1)} %`);

export function bytes(value) {
  if (value === null) return NONE;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${(value / size).toFixed(1)} ${unit}`;
  }
  return `${value.toFixed(0)} B`;
}

export function time(ms) {
  if (ms === null) return NONE;
  if (ms === Infinity) return "over 131 s";
  if (ms < 1000) return `${ms.toFixed(ms < 10 ? 1 : 0)} ms`;
  if (ms < 60000) return `${(ms / 1000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60000);
  return minutes < 60 ? `${minutes} min ${Math.floor((ms % 60000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}
