// All runs: find one, see how it does, choose several to compare.

import { address, follow } from "./api.js";
import { ago, badge, bar, duration, el, percent, put, short, sparkline } from "./dom.js";

const ORDERS = {
  changed: ["latest first", (a, b) => b.changed - a.changed],
  score: ["best score first", (a, b) => (b.score ?? -Infinity) - (a.score ?? -Infinity)],
  steps: ["most steps first", (a, b) => (b.agent_steps ?? 0) - (a.agent_steps ?? 0)],
  name: ["by name", (a, b) => a.run.localeCompare(b.run)],
};
const SHOWN_AT_ONCE = 400;
// What was chosen stays while one looks at a run and comes back.
const chosen = new Set();
const wish = { text: "", order: "changed" };

export function showRuns({ main, crumbs, session, go }) {
  document.title = "Runs";
  put(crumbs, el("strong", {}, "Runs"), el("span.muted.path", { title: session.results }, session.results));
  const runs = new Map();
  const rows = new Map();
  const count = el("p.muted", { role: "status" });
  const list = el("tbody");
  const compare = el("button.primary", { type: "button", onclick: () => go(address("/compare", { run: chosenHere() })) });
  const none = el("button", { type: "button", onclick: () => { chosen.clear(); draw(); } }, "Clear");
  const tray = el("div.tray", { role: "region", "aria-label": "Selected runs" }, compare, none);
  const more = el("p.muted");

  const filter = el("input", {
    type: "search", placeholder: "game, name, state, seed ...", value: wish.text, id: "filter",
    oninput: () => { wish.text = filter.value; draw(); },
  });
  const order = select("order", Object.entries(ORDERS).map(([value, [text]]) => [value, text]), wish.order, (value) => { wish.order = value; draw(); });

  put(main,
    el("div.page", {},
      el("h1", {}, "Runs"),
      el("div.tools", {},
        el("span.field", {}, el("label", { for: "filter" }, "Find"), filter),
        el("span.field", {}, el("label", { for: "order" }, "Order"), order), count),
      el("div.runs", {},
        el("table", {},
          el("caption.hidden", {}, "All runs"),
          el("thead", {}, el("tr", {}, ["Compare", "Run", "State", "Progress", "Score", "Curve", "Speed", "Changed"].map(
            (text, index) => el(index === 4 || index === 6 ? "th.number" : "th", { scope: "col" }, index ? text : el("span.hidden", {}, text))))),
          list)),
      more, tray));

  const chosenHere = () => [...chosen].filter((run) => runs.has(run));

  function matches(about) {
    const text = `${about.run} ${about.games} ${about.state} ${Object.values(about.flags).join(" ")} seed${about.flags.seed}`.toLowerCase();
    return wish.text.toLowerCase().split(/\s+/).every((word) => text.includes(word));
  }

  function draw() {
    const found = [...runs.values()].filter(matches).sort(ORDERS[wish.order][1]);
    const shown = found.slice(0, SHOWN_AT_ONCE);
    const at = document.activeElement;
    const focused = shown.find((about) => rows.get(about.run)?.node.contains(at));
    const nodes = shown.map((about) => {
      const kept = rows.get(about.run);
      if (kept && kept.about === about) return kept.node;
      const node = row(about);
      rows.set(about.run, { about, node });
      return node;
    });
    for (const about of shown) {
      const { node } = rows.get(about.run);
      node.querySelector("input").checked = chosen.has(about.run);
      node.classList.toggle("chosen", chosen.has(about.run));
      node.querySelector(".when").textContent = ago(about.changed);
    }
    if (!same(list.children, nodes)) {
      list.replaceChildren(...nodes);
      // The row itself may have been made anew; a row has one box and one link.
      if (focused) (at.isConnected ? at : rows.get(focused.run).node.querySelector(at.tagName)).focus({ preventScroll: true });
    }
    const training = found.filter((about) => ["starting", "filling", "training", "saving"].includes(about.state)).length;
    const text = runs.size === 0 ? "No runs here yet. Start one with: make train" : `${found.length} of ${runs.size} runs, ${training} training`;
    if (count.textContent !== text) count.textContent = text;
    more.textContent = found.length > shown.length ? `The first ${SHOWN_AT_ONCE} are shown; find others by their names.` : "";
    const there = chosenHere().length;
    tray.hidden = there === 0;
    compare.textContent = there === 1 ? "Show 1 run as a figure" : `Compare ${there} runs`;
  }

  function row(about) {
    const box = el("input", {
      type: "checkbox", "aria-label": `Select ${about.run}`,
      onchange: () => { if (box.checked) chosen.add(about.run); else chosen.delete(about.run); draw(); },
    });
    const share = about.target_steps ? (about.agent_steps ?? 0) / about.target_steps : null;
    const steps = `${short(about.agent_steps)}${about.target_steps ? ` of ${short(about.target_steps)}` : ""}`;
    const left = about.seconds_left !== null && !["ended", "failed", "stopped"].includes(about.state) ? ` · ${duration(about.seconds_left)} left` : "";
    const facts = [about.games, about.flags.seed !== undefined ? `seed ${about.flags.seed}` : "", about.group].filter(Boolean).join(" · ");
    const score = el("td.number.score", { "data-name": "Score" }, short(about.score));
    if (about.best !== null) score.append(el("small", { title: "best single game" }, `best ${short(about.best)}`));
    return el("tr", {},
      el("td.pick", {}, box),
      el("th.name", { scope: "row" }, el("a", { href: address("/run", { run: about.run }) }, about.name), el("small", {}, facts)),
      el("td.state", {}, badge(about.state, about.reason), about.findings ? el("small.finding", {}, `${about.findings} finding${about.findings > 1 ? "s" : ""}`) : null),
      el("td.progress", {}, share === null ? null : bar(share, `${percent(share)} of the agent steps`), el("small", {}, steps + left)),
      score,
      el("td.curve", {}, sparkline(about.curve, `Score over agent steps, now ${short(about.score)}`)),
      el("td.number.speed", {}, about.steps_per_second === null ? "–" : `${short(about.steps_per_second)}/s`),
      el("td.when", {}, ago(about.changed)));
  }

  draw();
  count.textContent = "Looking for runs ...";
  const stop = follow("/api/runs", {}, 4, ({ runs: found }) => {
    const there = new Map(found.map((about) => [about.run, about]));
    for (const run of [...runs.keys()].filter((each) => !there.has(each))) { runs.delete(run); rows.delete(run); chosen.delete(run); }
    for (const [run, about] of there) {
      if (JSON.stringify(runs.get(run)) !== JSON.stringify(about)) runs.set(run, about);
    }
    draw();
  });
  const timer = setInterval(draw, 20000);  // "3 min ago" gets older
  return () => { stop(); clearInterval(timer); };
}

function select(id, options, value, onchoose) {
  const node = el("select", { id, onchange: () => onchoose(node.value) }, options.map(([key, text]) => el("option", { value: key }, text)));
  node.value = value;
  return node;
}

function same(children, nodes) {
  return children.length === nodes.length && nodes.every((node, index) => children[index] === node);
}
