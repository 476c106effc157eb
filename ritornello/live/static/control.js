// Commands to a run under way. The run answers each; what it has not answered yet is said to wait.

import { send } from "./api.js";
import { ago, el, put, short } from "./dom.js";

const NAMES = { lr_factor: "Learning rate ×", entropy_factor: "Entropy bonus ×", replay_share: "Share of replay" };

/** A panel of buttons for one run. `update` takes what the server said of the run. */
export class ControlPanel {
  constructor(run, session) {
    this.run = run;
    this.bounds = session.settings;
    this.node = el("section.card.control", { "aria-label": "Control" });
    this.said = el("p.muted", { role: "status" });
    this.refusal = el("p.problem", { role: "alert" });  // stays until the next command
    this.buttons = {};
    const button = (name, text, kind = "button") => {
      this.buttons[name] = el(kind, { type: "button", onclick: () => this.command(name) }, text);
      return this.buttons[name];
    };
    const row = el("div.more", {}, button("pause", "Pause", "button.primary"), button("continue", "Continue", "button.primary"),
      button("save", "Save now"), button("evaluate", "Evaluate now"), this.stopButton());
    this.inputs = {};
    const fields = Object.entries(this.bounds).map(([name, bounds]) => {
      const id = `set-${name}`;
      this.inputs[name] = el("input", { id, type: "number", min: bounds.low, max: bounds.high, step: "any", required: true, value: 1, title: bounds.about });
      return el("span.field", {}, el("label", { for: id }, NAMES[name] || name), this.inputs[name]);
    });
    this.form = el("form.more", { onsubmit: (event) => { event.preventDefault(); this.set(); } }, fields, el("button", { type: "submit" }, "Apply"));
    this.answers = el("ul.answers");
    put(this.node, el("h2", {}, "Control"), row, this.form, this.refusal, this.said, this.answers);
    this.node.hidden = true;
  }

  /** Stop asks once more: the first press arms the button for some seconds. */
  stopButton() {
    const text = "Stop ...", sure = "Save and end the run?";
    let timer = 0;
    const node = el("button.danger", { type: "button", onclick: () => {
      if (node.textContent === sure) {
        clearTimeout(timer);
        node.textContent = text;
        this.command("stop");
        return;
      }
      node.textContent = sure;
      timer = setTimeout(() => { node.textContent = text; }, 6000);
    } }, text);
    this.buttons.stop = node;
    return node;
  }

  update(about) {
    const control = about.control || {};
    const able = Array.isArray(control.commands) ? control.commands : [];
    const isRunning = ["starting", "filling", "training", "paused", "saving"].includes(about.state);
    this.node.hidden = !isRunning || !able.length;
    if (this.node.hidden) return;
    for (const [name, button] of Object.entries(this.buttons)) button.hidden = !able.includes(name);
    const [shown, gone] = control.paused === true ? [this.buttons.continue, this.buttons.pause] : [this.buttons.pause, this.buttons.continue];
    if (document.activeElement === gone) shown.focus();  // before it is hidden, or the focus were lost
    gone.hidden = true;
    this.form.hidden = !able.includes("set");
    const settings = control.settings || {};
    for (const [name, input] of Object.entries(this.inputs)) {
      // What is not offered must not keep the form from being sent: its value may be out of bounds.
      input.disabled = input.parentNode.hidden = settings[name] === undefined;
      const now = JSON.stringify(settings[name]);
      if (input.dataset.now !== now && document.activeElement !== input) input.value = settings[name] ?? 1;
      input.dataset.now = now;
    }
    const rate = about.newest["optimiser/lr"];
    const facts = [about.waiting ? `${about.waiting} command${about.waiting > 1 ? "s" : ""} not answered yet` : "",
      rate !== undefined ? `learning rate now ${short(rate)}` : ""].filter(Boolean);
    this.said.textContent = facts.join(" · ");
    const answers = Array.isArray(control.acknowledged) ? control.acknowledged.slice(-5).reverse() : [];
    put(this.answers, answers.map((answer) => el("li", {},
      el("strong", {}, String(answer.command)), " ", String(answer.result ?? ""), el("span.muted", {}, ` · ${ago(answer.time)}`))));
  }

  set() {
    const values = {};
    for (const [name, input] of Object.entries(this.inputs)) {
      if (!input.parentNode.hidden && JSON.stringify(Number(input.value)) !== input.dataset.now) values[name] = Number(input.value);
    }
    if (Object.keys(values).length) this.command("set", values);
    else this.refusal.textContent = "These are the present values.";
  }

  async command(name, values = {}) {
    this.refusal.textContent = "";
    this.said.textContent = `sending ${name} ...`;
    try {
      await send("/api/control", { run: this.run }, { command: name, values });
      this.said.textContent = `${name}: waiting for the run's answer`;
    } catch (problem) {
      this.said.textContent = "";
      this.refusal.textContent = `${name}: ${problem.message}`;
    }
  }
}
