// The page: asks the router how it is once a second while somebody looks, and shows it. What is wrong stands first.

import { startChat } from "./chat.js";
import { byId, element, onOpen, setClass, setText } from "./elements.js";
import { History } from "./figures.js";
import { showPairs, showTiles, showWorkers } from "./pools.js";
import { openTimeline, showSlow, showStreams } from "./requests.js";
import { openRunbook, startRunbook } from "./runbook.js";
import { KeyNeeded, getJson, hasKey, useKey } from "./server.js";
import { trendsOf } from "./trends.js";

const INTERVAL_MS = 1000;
const SEVERITIES = ["page", "warning", "note"]; // the worst first

let history = new History();
let timer = null;
let isAsking = false;
let answeredAt = null;

// As in the document's data-polling: starting, on, hidden, key, failing.
function setPolling(state) {
  document.body.dataset.polling = state;
}

function troubleItem(trouble) {
  const item = element("li", { class: trouble.severity, "data-metric": trouble.metric },
                       element("span", { class: "badge" }, trouble.severity), " ", trouble.what, " ");
  if (trouble.metric !== "") item.append(element("code", {}, trouble.metric), " ");
  if (trouble.runbook !== "") {
    item.append(element("button", { type: "button", class: "link", "data-opens": trouble.runbook }, "what to do"));
  }
  return item;
}

let shownTroubles = "";

function showTroubles(troubles) {
  const told = JSON.stringify(troubles);
  if (told === shownTroubles) return; // a reader's screen would say it again, a selection would be lost
  shownTroubles = told;
  const items = troubles.map(troubleItem);
  if (items.length === 0) items.push(element("li", { class: "fine" }, "Nothing that this router sees."));
  byId("troubles").replaceChildren(...items);
}

function show(state) {
  setText(byId("instance"), state.instance);
  const words = state.is_draining ? "draining" : state.is_ready ? "ready" : "not ready";
  setText(byId("readiness"), words);
  setClass(byId("readiness"), `badge ${state.is_ready ? "good" : "bad"}`);
  setText(byId("updated"), `at ${state.time}`);
  document.title = state.troubles.some((trouble) => trouble.severity === "page") ? "! Tandem" : "Tandem";
  showTroubles([...state.troubles, ...trendsOf(...history.minute(), state.time_to_first_token.bounds_s)].sort(
    (a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity)));
  showTiles(state, history);
  showWorkers(state, history);
  showPairs(state);
  showStreams(state);
  showSlow(state);
}

function showSilence(error) {
  const since = answeredAt === null ? "" : `, what is below is ${Math.round((performance.now() - answeredAt) / 1000)} s old`;
  setText(byId("readiness"), "no answer");
  setClass(byId("readiness"), "badge bad");
  document.title = "! Tandem";
  showTroubles([{
    severity: "page",
    what: `this router does not answer (${error.message})${since}: is the process there, can this browser reach it?`,
    metric: "up",
    runbook: "a-workers-readyz-is-503",
  }]);
}

async function poll() {
  timer = null;
  isAsking = true;
  try {
    const state = await getJson("debug/state");
    answeredAt = performance.now();
    history.add(state, answeredAt);
    byId("key-form").hidden = true;
    byId("forget-key").hidden = !hasKey();
    setPolling("on");
    show(state);
  } catch (error) {
    if (error instanceof KeyNeeded) askForKey(error);
    else {
      setPolling("failing");
      showSilence(error);
    }
  } finally {
    isAsking = false;
  }
  schedule(INTERVAL_MS);
}

// Once what was asked is answered, and only while somebody looks and there is no key to wait for.
function schedule(after) {
  if (timer !== null || isAsking || document.body.dataset.polling === "key") return;
  if (document.hidden) setPolling("hidden");
  else timer = setTimeout(poll, after);
}

function onVisibility() {
  if (document.hidden && timer !== null) {
    clearTimeout(timer);
    timer = null;
  }
  schedule(0);
}

function askForKey(error) {
  const wasGiven = hasKey();
  useKey("");
  setPolling("key");
  byId("key-form").hidden = false;
  byId("forget-key").hidden = true;
  setText(byId("key-error"), wasGiven ? error.message : "");
  byId("key").focus();
}

function takeKey(event) {
  event.preventDefault();
  useKey(byId("key").value);
  byId("key").value = "";
  setPolling("starting");
  schedule(0);
}

function forgetKey() {
  if (timer !== null) clearTimeout(timer);
  timer = null;
  useKey("");
  location.reload(); // and with it all that was shown
}

byId("key-form").addEventListener("submit", takeKey);
byId("forget-key").addEventListener("click", forgetKey);
document.addEventListener("visibilitychange", onVisibility);
onOpen(byId("troubles"), openRunbook);
for (const id of ["streams", "slow", "transcript"]) onOpen(byId(id), openTimeline);
startRunbook();
startChat();
schedule(0);
