// Asks this router, and nobody else. The key is in this module's memory alone: a closed or reloaded page has none.

const PATIENCE_MS = 10000;

let key = "";

export class KeyNeeded extends Error {}

export const hasKey = () => key !== "";
export function useKey(given) {
  key = given;
}

function headers(more) {
  return key === "" ? more : { ...more, Authorization: `Bearer ${key}` };
}

async function failure(response) {
  let words = `${response.status} ${response.statusText}`;
  try {
    words = (await response.json()).error.message;
  } catch {
    // not an error of the API's form: the status says it
  }
  return response.status === 401 ? new KeyNeeded(words) : new Error(words);
}

// path: relative to the router's root, which may lie behind a proxy's prefix.
export async function get(path) {
  const response = await fetch(path, {
    headers: headers({}),
    credentials: "omit",
    cache: "no-store",
    signal: AbortSignal.timeout(PATIENCE_MS),
  });
  if (!response.ok) throw await failure(response);
  return response;
}

export async function getJson(path) {
  return (await get(path)).json();
}

// The objects of a stream of events, as they come.
export async function* postForEvents(path, body, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: headers({ "Content-Type": "application/json" }),
    credentials: "omit",
    cache: "no-store",
    body: JSON.stringify(body),
    signal,
  });
  if (!response.ok) throw await failure(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line.startsWith("data: ") || line === "data: [DONE]") continue;
      yield JSON.parse(line.slice("data: ".length));
    }
  }
}
