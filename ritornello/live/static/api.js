// Questions to the server, again and again where something may change, and commands.

import { el, setNow } from "./dom.js";

/** Ask for JSON; throws with the answer's own words if it says no. Null: nothing is new. */
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
  if (response.status === 204) return null;
  const text = await response.text();
  let data = null;
  try { data = JSON.parse(text); } catch { /* not JSON: it is a message */ }
  if (!response.ok) {
    const problem = new Error((data && data.error) || text || `the server said ${response.status}`);
    problem.status = response.status;
    throw problem;
  }
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

/** Ask every `everyS` seconds while somebody sees the page; `onnews` gets what is new. Returns the end of it. */
export function follow(path, query, everyS, onnews) {
  let seen = null, ended = false, timer = 0;
  const turn = async () => {
    clearTimeout(timer);
    if (ended || document.hidden) return;
    try {
      const news = await ask(path, { ...query, seen });
      if (ended) return;
      say("live", "live");
      if (news) {
        await onnews(news);
        seen = news.seen;  // else it is asked for again: a run that is over has no other news
      }
    } catch (problem) {
      if (ended) return;
      if (problem.status === undefined) say("connection lost, trying again", "lost");
      else say("refused", "lost", problem.message);
      // A server that was started again lets this page in once its new address was opened in any tab.
      if (problem.status === 403) ask("/api/session").then((session) => mayPost(session.post), () => {});
    }
    clearTimeout(timer);
    timer = setTimeout(turn, 1000 * everyS);
  };
  document.addEventListener("visibilitychange", turn);
  turn();
  return () => {
    ended = true;
    clearTimeout(timer);
    document.removeEventListener("visibilitychange", turn);
  };
}
