// Questions to the server, and the stream in which it says what has changed.

import { el, setNow } from "./dom.js";

export class Problem extends Error {
  constructor(text, status) {
    super(text);
    this.status = status;
  }
}

/** Ask for JSON; the answer's own words if it says no. */
export async function ask(path, query = {}) {
  return answer(await fetch(address(path, query), { credentials: "same-origin" }));
}

let token = "";

/** Keep what a command must have besides the cookie, so that no other page can send one. */
export function mayPost(post) {
  token = post;
}

export async function send(path, query, data) {
  return answer(await fetch(address(path, query), {
    method: "POST", credentials: "same-origin", body: JSON.stringify(data),
    headers: { "content-type": "application/json", "x-live-token": token },
  }));
}

export function address(path, query = {}) {
  const pairs = Object.entries(query).flatMap(([name, value]) => [].concat(value).map((one) => [name, one]));
  const text = new URLSearchParams(pairs.filter(([, value]) => value !== null && value !== undefined)).toString();
  return text ? `${path}?${text}` : path;
}

async function answer(response) {
  const text = await response.text();
  let data = null;
  try { data = JSON.parse(text); } catch { /* not JSON: it is a message */ }
  if (!response.ok) throw new Problem((data && data.error) || text || `the server said ${response.status}`, response.status);
  return timed(data);
}

/** Set the clock by what the server says, wherever it says the time. */
function timed(data) {
  if (typeof data?.now === "number") setNow(data.now);
  return data;
}

const shown = document.getElementById("connection");
const refusal = el("p.problem.pad", { role: "alert" });

function say(text, state, why = "") {
  if (shown.textContent !== text) shown.textContent = text;
  shown.dataset.state = state;
  refusal.textContent = why;
  if (why) document.getElementById("main").before(refusal);
  else refusal.remove();
}

/** Say that this view is not followed: it shows a moment. */
export function resting() {
  say("", "resting");
}

/**
 * Follow a stream of events. A browser allows six connections to a server in all tabs together, so a
 * tab that nobody sees gives its own back, and asks again when it is seen.
 */
export function follow(query, onnews) {
  let source = null, ended = false, refused = false;
  const open = () => {
    if (ended || source || document.hidden) return;
    source = new EventSource(address("/api/events", query));
    source.onopen = () => say("live", "live");
    source.onmessage = (event) => onnews(timed(JSON.parse(event.data)));
    source.onerror = () => {
      say("connection lost, trying again", "lost");
      if (source && source.readyState === EventSource.CLOSED) {
        source = null;
        enter(() => setTimeout(open, 3000));
      }
    };
  };
  // A stream that is refused does not say why, but another question does. A server that was started
  // again has another token, and lets this page in once its new address was opened in any tab.
  const enter = async (then) => {
    try {
      mayPost((await ask("/api/session")).post);
      refused = false;
    } catch (problem) {
      refused = problem.status === 403;
      if (refused && !ended) say("not let in", "lost", problem.message);
    }
    if (!ended && !refused) then();
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  const look = () => {
    if (refused) {
      if (!document.hidden) enter(open);
    } else if (document.hidden) {
      close();
      say("asleep while hidden", "asleep");
    } else open();
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", close);
  open();
  return () => {
    ended = true;
    close();
    document.removeEventListener("visibilitychange", look);
    removeEventListener("pagehide", close);
  };
}
