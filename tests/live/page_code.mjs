// Tests of the page's code. test_page_code.py starts them and reads what they print: {name: problem or null}.

import assert from "node:assert/strict";
import * as world from "./page_code_world.mjs";

const { aboutRun, all, answers, asked, button, choose, inList, nowS, one, rowsFor, settle, show, stream, text, timers } = world;
const { showRun } = await world.page("run.js");
const { showRuns } = await world.page("runs.js");
const tests = {};
const test = (name, body) => { tests[name] = body; };
const NEWS = { changed: ["metrics.jsonl", "status.json"] };
const titles = () => all(".panel-head").map((node) => node.firstChild.textContent);
const busy = () => ({ workers: [{ number: 0, doing: "acting", agent_steps: 1000 * asked.length }] });  // never the same twice

// --- one run -------------------------------------------------------------------------------------

test("the choice of another curve stays while it is in use", async () => {
  let names = aboutRun().names;
  answers["/api/run"] = () => aboutRun({ names });
  await show(showRun);
  const pick = one("#more-metrics");
  pick.focus();
  names = [...names, "lag/max"];
  stream().tell(NEWS);
  await settle();
  assert.equal(document.activeElement, pick);
  assert.ok(!pick.textContent.includes("lag/max"), "an open list does not change");
  one(".big .plot").focus();
  assert.ok(one("#more-metrics").textContent.includes("lag/max"), "it is there as soon as the list is left");
});

test("the choice of another curve is made anew only for other names", async () => {
  await show(showRun);
  const option = one("#more-metrics option:last-child");
  stream().tell(NEWS);
  await settle();
  assert.equal(one("#more-metrics option:last-child"), option);
});

test("a chosen curve is drawn and then chosen no more", async () => {
  await show(showRun);
  one("#more-metrics").focus();
  choose(one("#more-metrics"), "lag/mean");
  await settle();
  assert.equal(titles().at(-1), "lag/mean");
  assert.ok(!text("#more-metrics").includes("lag/mean"));
  assert.equal(one("#more-metrics").value, "");
  assert.equal(document.activeElement, all(".plot").at(-1));
  button("×").focus();
  button("×").click();
  assert.ok(text("#more-metrics").includes("lag/mean"));
  assert.equal(document.activeElement, one("#more-metrics"), "where it can be chosen again");
});

test("a table that is made anew keeps the focus and how far it was moved", async () => {
  answers["/api/run"] = () => aboutRun({ status: busy() });
  await show(showRun);
  const before = one(".scroll");
  before.focus();
  before.scrollLeft = 120;
  stream().tell(NEWS);
  await settle();
  assert.notEqual(one(".scroll"), before);
  assert.equal(document.activeElement, one(".scroll"));
  assert.equal(one(".scroll").scrollLeft, 120);
});

test("the focus stays on the same link when another one comes before it", async () => {
  let films = ["3", "2", "1"];
  answers["/api/run"] = () => aboutRun({ films: films.map((name) => ({ name: `films/${name}.gif`, time: 1, bytes: 1 })) });
  await show(showRun);
  one(".files").parentNode.open = true;
  all(".files a").find((link) => link.textContent === "films/1.gif").focus();
  films = ["4", ...films];
  stream().tell(NEWS);
  await settle();
  assert.equal(document.activeElement.textContent, "films/1.gif");
});

test("the log keeps its place", async () => {
  let log = ["a", "b"];
  answers["/api/run"] = () => aboutRun({ log });
  await show(showRun);
  one("pre").focus();
  one("pre").scrollTop = 7;
  log = ["b", "c"];
  stream().tell(NEWS);
  await settle();
  assert.equal(document.activeElement, one("pre"));
  assert.equal(one("pre").scrollTop, 7);
});

test("a view that was left is followed no more", async () => {
  for (let visit = 0; visit < 5; visit += 1) {
    await show(showRun);
    assert.deepEqual(world.listening.filter((type) => type === "pagehide"), ["pagehide"]);
  }
});

test("an answer to a view that was left makes no charts", async () => {
  let release = null;
  answers["/api/run"] = () => new Promise((done) => { release = () => done(aboutRun()); });
  await show(showRun);
  await show(showRuns);
  asked.length = 0;
  release();
  await settle();
  assert.equal(world.observers.size, 0);
  assert.deepEqual(asked, []);
});

test("a curve that is chosen while rows are on their way is drawn", async () => {
  let release = null;
  answers["/api/rows"] = async (url) => {
    if (url.searchParams.has("after")) await new Promise((done) => { release = done; });
    return rowsFor(url);
  };
  await show(showRun);
  stream().tell(NEWS);
  await settle();
  choose(one("#more-metrics"), "lag/mean");
  await settle();
  release();
  await settle();
  assert.equal(text(".problem"), "");
  assert.match(all(".plot").at(-1).getAttribute("aria-label"), /^lag\/mean over agent steps/);
  assert.ok(!all(".panel").at(-1).hidden);
});

test("a curve that was taken away and is chosen again has all of its values", async () => {
  await show(showRun);
  const pick = one("#more-metrics");
  choose(pick, "lag/mean");
  await settle();
  button("×").click();
  answers["/api/rows"] = (url) => (url.searchParams.has("after")
    ? { generation: 0, total: 41, steps: [40], minutes: [40], columns: { "episode/return_mean": [2], "loss/policy": [2] } } : rowsFor(url));
  stream().tell(NEWS);
  await settle();
  asked.length = 0;
  choose(pick, "lag/mean");
  await settle();
  const question = asked.find((url) => url.pathname === "/api/rows" && url.searchParams.get("names").includes("lag/mean"));
  assert.ok(!question.searchParams.has("after"), "rows were added without it: all are asked for");
});

test("a chosen curve is asked for again when the server did not answer", async () => {
  await show(showRun);
  answers["/api/rows"] = { status: 500, body: { error: "no" } };
  choose(one("#more-metrics"), "lag/mean");
  await settle();
  assert.equal(text(".problem"), "no");
  answers["/api/rows"] = rowsFor;
  stream().tell(NEWS);
  await settle();
  assert.equal(text(".problem"), "");
  assert.ok(all(".plot").at(-1).hasAttribute("aria-label"));
  assert.ok(!all(".panel").at(-1).hidden);
});

test("a run of several games that is opened before its first record has a curve for each", async () => {
  let names = [];
  answers["/api/run"] = () => aboutRun({ names });
  await show(showRun);
  assert.deepEqual(titles(), ["Mean return", "Policy loss"]);
  names = ["loss/policy", "loss/value"];  // no game has ended yet
  stream().tell(NEWS);
  await settle();
  choose(one("#more-metrics"), "loss/value");
  await settle();
  names = [...names, "episode/score_mean", "episode/return_mean_pong", "episode/return_mean_breakout"];
  for (let record = 0; record < 2; record += 1) {
    stream().tell(NEWS);
    await settle();
    assert.deepEqual(titles(), ["Score", "Mean return of each game", "Policy loss", "loss/value"]);
  }
  const plots = all(".plot").map((node) => node.getAttribute("aria-label"));
  assert.match(plots[0], /^Score over/);
  assert.match(plots[1], /pong from 1 to 1.*breakout from 1 to 1/);
});

for (const ahead of [300, -300]) {
  test(`the clock of the browser does not matter: ${ahead} s`, async () => {
    answers["/api/run"] = () => aboutRun({ changed: nowS() - ahead - 20, now: nowS() - ahead });
    await show(showRun);
    assert.equal(one(".quiet-run"), null);
    assert.match(text(".headbar p"), /last record 20 s ago/);
    answers["/api/run"] = () => aboutRun({ changed: nowS() - ahead - 100, now: nowS() - ahead });
    stream().tell(NEWS);
    await settle();
    assert.equal(text(".quiet-run"), "no sign for 2 min");
  });
}

const CONTROL = { commands: ["pause", "continue", "save", "stop", "set"], paused: false, acknowledged: [] };

test("the refusal of a command stays until the next command", async () => {
  answers["/api/run"] = () => aboutRun({ control: CONTROL, newest: { "optimiser/lr": 0.5 } });
  answers["/api/control"] = { status: 403, body: { error: "It cannot be written." } };
  await show(showRun);
  button("Pause").click();
  await settle();
  for (let record = 0; record < 2; record += 1) {
    assert.equal(text(".control [role=alert]"), "pause: It cannot be written.");
    stream().tell(NEWS);
    await settle();
  }
  assert.equal(text(".control [role=status]"), "learning rate now 0.500");
  answers["/api/control"] = { id: "1" };
  button("Pause").click();
  await settle();
  assert.equal(text(".control [role=alert]"), "");
  assert.equal(text(".control [role=status]"), "pause: waiting for the run's answer");
});

test("only those commands are offered that the run takes", async () => {
  answers["/api/run"] = () => aboutRun({ control: { ...CONTROL, commands: ["save", "stop"] } });
  await show(showRun);
  const offered = all(".control .more:not(form) button").filter((node) => !node.hidden);
  assert.deepEqual(offered.map((node) => node.textContent), ["Save now", "Stop ..."]);
});

test("the button that takes the place of the pressed one takes the focus", async () => {
  let paused = false;
  answers["/api/run"] = () => aboutRun({ control: { ...CONTROL, paused } });
  await show(showRun);
  button("Pause").focus();
  paused = true;
  stream().tell(NEWS);
  await settle();
  assert.equal(document.activeElement, button("Continue"));
});

// --- all runs ------------------------------------------------------------------------------------

const shown = () => all(".runs tbody th a").map((link) => link.textContent).sort();
const tick = (run) => {
  const box = one(`[aria-label="Select ${run}"]`);
  box.checked = true;
  box.dispatchEvent(new Event("change"));
};
const listOf = (...runs) => ({ runs: runs.map((run) => inList(run)), gone: [], all: true, now: nowS() });

test("a run that was deleted while nobody looked is neither shown nor compared", async () => {
  let went = "";
  const go = (address) => { went = address; };
  answers["/api/runs"] = listOf("a", "b", "c");
  await show(showRuns, { go });
  stream().tell(listOf("a", "b", "c"));
  tick("a");
  tick("b");
  world.hide(true);
  world.hide(false);
  stream().tell(listOf("a", "c"));
  assert.deepEqual(shown(), ["a", "c"]);
  assert.match(text(".tools p"), /^2 of 2 runs/);
  assert.equal(text(".tray .primary"), "Show 1 run as a figure");
  one(".tray .primary").click();
  assert.equal(went, "/compare?run=a");

  answers["/api/runs"] = listOf("c");  // and one that went while another view was shown
  await show(showRun);
  await show(showRuns, { go });
  tick("c");
  one(".tray .primary").click();
  assert.equal(went, "/compare?run=c");
  stream().tell(listOf());
  assert.deepEqual(shown(), []);
  assert.match(text(".tools p"), /^No runs here yet/);
});

test("an event tells of those that changed and those that went", async () => {
  await show(showRuns);
  stream().tell(listOf("a", "b"));
  stream().tell({ runs: [inList("c")], gone: ["a"], now: nowS() });
  assert.deepEqual(shown(), ["b", "c"]);
});

test("the first answer of the list does not bring back what an event has taken", async () => {
  let release = null;
  answers["/api/runs"] = () => new Promise((done) => { release = () => done(listOf("a", "b")); });
  await show(showRuns);
  stream().tell(listOf("a", "b"));
  stream().tell({ runs: [], gone: ["b"], now: nowS() });
  release();
  await settle();
  assert.deepEqual(shown(), ["a"]);
});

test("a row that is made anew keeps the focus", async () => {
  await show(showRuns);
  stream().tell(listOf("a", "b"));
  for (const selector of ["[aria-label='Select a']", "a[href='/run?run=a']"]) {
    one(selector).focus();
    stream().tell({ runs: [inList("a", { score: asked.length })], gone: [], now: nowS() });
    assert.equal(document.activeElement, one(selector));
  }
});

test("a late answer to a view that was left changes nothing", async () => {
  let refuse = null;
  answers["/api/runs"] = () => new Promise((done) => { refuse = () => done({ status: 503, body: { error: "Service Unavailable" } }); });
  await show(showRuns);
  await show(showRun);
  refuse();
  await settle();
  assert.equal(text("h1"), "Pong");
});

test("the list counts the time by the clock of the server", async () => {
  answers["/api/runs"] = () => ({ runs: [inList("a", { changed: nowS() - 320 })], now: nowS() - 300 });
  await show(showRuns);
  assert.equal(text(".when"), "20 s ago");
  stream().tell({ runs: [inList("a", { changed: nowS() - 3620 })], gone: [], all: true, now: nowS() - 3600 });
  assert.equal(text(".when"), "20 s ago");
});

// --- the connection ------------------------------------------------------------------------------

const NO_ENTRY = { status: 403, body: { error: "Open the address that the program printed." } };

test("a server that was started again says why it lets nobody in", async () => {
  await show(showRuns);
  stream().onopen();
  answers["/api/session"] = NO_ENTRY;
  stream().refuse();
  await settle();
  assert.equal(text("body > [role=alert]"), NO_ENTRY.body.error);
  assert.equal(text("#connection"), "not let in");
  assert.deepEqual(timers, [], "it does not ask for ever");
  const before = world.streams.length;

  world.hide(true);
  answers["/api/session"] = { ...world.session, post: "new" };  // the new address was opened in another tab
  world.hide(false);
  await settle();
  assert.equal(world.streams.length, before + 1);
  stream().onopen();
  assert.equal(one("body > [role=alert]"), null);
  assert.equal(text("#connection"), "live");
  let sent = "";
  answers["/api/control"] = (url, options) => { sent = options.headers["x-live-token"]; return { id: "1" }; };
  await (await world.page("api.js")).send("/api/control", {}, {});
  assert.equal(sent, "new");
});

test("a server that is away is asked again", async () => {
  await show(showRuns);
  for (const reason of [undefined, { status: 503, body: { error: "busy" } }, world.session]) {
    answers["/api/session"] = reason;
    const before = world.streams.length;
    stream().refuse();
    await settle();
    assert.equal(text("#connection"), "connection lost, trying again");
    const [[again]] = timers.splice(0);
    again();
    assert.equal(world.streams.length, before + 1);
  }
});

test("a view that was left while it asked why opens no stream", async () => {
  await show(showRuns);
  let release = null;
  answers["/api/session"] = () => new Promise((done) => { release = () => done(NO_ENTRY); });
  stream().refuse();
  await settle();
  await show(showRun);
  const before = world.streams.length;
  stream().onopen();
  release();
  await settle();
  for (const [again] of timers.splice(0)) again();
  assert.equal(world.streams.length, before);
  assert.equal(text("#connection"), "live");
});

// --- run them ------------------------------------------------------------------------------------

const found = {};
for (const [name, body] of Object.entries(tests)) {
  world.fresh();
  try {
    await body();
    found[name] = null;
  } catch (problem) {
    found[name] = problem.stack;
  }
}
console.log(JSON.stringify(found));
process.exit(0);  // jsdom goes on drawing frames
