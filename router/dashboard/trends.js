// What is wrong that only two looks a while apart can show: of the last minute, with the alerts' thresholds. What one
// look shows the router says itself (troubles.h).

import { number, quantile, time } from "./figures.js";

const FIRST_TOKEN_MAX_S = 10; // TandemAnswersBeginLate
const REFUSED_MAX = 0.05; // TandemRequestsRefused
const REFUSED_LEAST = 5; // fewer are no trend

function came(first, last, status) {
  const of = (sample) =>
    Object.entries(sample.counters.requests_by_status)
      .filter(([code]) => status === null || Number(code) === status)
      .reduce((total, [, count]) => total + count, 0);
  return of(last) - of(first);
}

// first, last: History.minute(). Of the same form as the router's troubles.
export function trendsOf(first, last, bounds) {
  const trends = [];
  const add = (what, metric, runbook) => trends.push({ severity: "warning", what, metric, runbook });
  const late = quantile(bounds, first.ttft, last.ttft, 0.99);
  if (late !== null && late > FIRST_TOKEN_MAX_S) {
    add(`one answer in a hundred begins after more than ${time(1000 * FIRST_TOKEN_MAX_S)}`,
        "tandem_time_to_first_token_seconds", "answers-are-slow");
  }
  const refused = came(first, last, 429);
  const all = came(first, last, null);
  if (refused >= REFUSED_LEAST && refused > REFUSED_MAX * all) {
    add(`${number(refused)} of ${number(all)} requests found no place within a minute: they got 429`,
        "tandem_router_requests_total", "clients-get-429");
  }
  const lost = last.counters.workers_lost - first.counters.workers_lost;
  if (lost > 0) {
    add(`a worker was lost ${lost === 1 ? "once" : `${lost} times`} within a minute; its requests went on elsewhere or failed`,
        "tandem_router_workers_lost_total", "a-worker-is-suspected");
  }
  const ejected = last.counters.ejections - first.counters.ejections;
  if (ejected > 0) {
    add(`a worker was ejected ${ejected === 1 ? "once" : `${ejected} times`} within a minute`,
        "tandem_router_worker_ejections_total", "a-worker-is-suspected");
  }
  return trends;
}
