// The view "Job": its state, how far it is, and a strip over time for each task.

import { badge, byTask, count, counted, duration, el, empty, figure, mib, problem, redraw, when, whole, hasEnded } from "./dom.js";
import { fetched } from "./stream.js";

/** How often (ms) to fetch samples. */
const AGAIN = 10000;
/** A task that has printed nothing for so long (s) is shown as silent, and a GPU used less than this (%) as idle. */
const SILENT = 60;
const IDLE = 5;
const ATTENTION = ["failed", "lost", "unknown", "starting", "pending", "running", "stopped", "succeeded"];

export function job(main, name, followJob) {
  const head = el("section", { class: "job-head", "aria-label": "State" });
  const strips = el("section", { "aria-labelledby": "tasks-title" });
  const rows = el("ul", { class: "strips" });
  const axis = el("p", { class: "axis" });
  const errors = el("div");
  const reasons = el("section", { class: "why", "aria-label": "What is wrong" });
  const ask = el("button", { type: "button", title: "Find the task that makes the job hang or fail", onclick: why }, "What is wrong?");
  const answer = el("div", { role: "status" });
  reasons.append(ask, answer);
  main.replaceChildren(head, errors, reasons, strips);
  strips.append(
    el("div", { class: "head" }, el("h2", { id: "tasks-title", text: "Tasks over time" }),
      el("p", { class: "legend" }, ...[["run", "running"], ["quiet", `silent > ${SILENT} s`], ["lazy", "GPU idle"], ["fail", "failed"], ["again", "restart"]]
        .flatMap(([kind, text]) => [el("i", { class: `key ${kind}` }), text]))),
    rows, axis);
  let state = null;
  let series = { curves: {}, attempts: {} };
  let events = [];
  const made = new Map();

  followJob((value) => {
    if (value.error) {
      head.replaceChildren(el("h1", { text: name }), problem({ message: value.error, remedy: value.remedy }));
      return;
    }
    const first = state === null;
    const changed = first || value.attempt !== state.attempt || value.rows.some((row, at) => row.restarts !== state.rows[at]?.restarts);
    state = value;
    redraw(head, JSON.stringify([value, Math.floor(Date.now() / 5000)]), () => headOf(value));
    drawRows();
    if (changed) update();
  });

  /** Ask the hosts, which takes some seconds, who is the cause. */
  async function why() {
    ask.disabled = true;
    answer.replaceChildren(el("p", { class: "quiet" }, "The hosts measure the tasks for two seconds …"));
    try {
      const found = await fetched(`/api/why/${encodeURIComponent(name)}`);
      const calm = { healthy: "The hosts see nothing that is wrong with this job.", unknown: "Unknown: nothing that the hosts see tells why the job does not go on." }[found.verdict];
      answer.replaceChildren(
        ...(calm ? [el("p", { text: calm })] : []),
        ...found.culprits.map((each) => el("div", { class: "cause bad" }, el("p", {}, each.sentence, " ", each.task ? el("a", { href: `/logs/${encodeURIComponent(name)}?task=${each.task}` }, "Logs") : null),
          el("p", { class: "remedy" }, "→ ", each.remedy))),
        el("ul", { class: "evidence" }, ...found.evidence.map((text) => el("li", { text }))));
    } catch (error) {
      answer.replaceChildren(problem(error));
    } finally {
      ask.disabled = false;
    }
  }

  async function update() {
    if (!state || document.hidden) return;
    const path = encodeURIComponent(name);
    try {
      const [found, happened] = await Promise.all([fetched(`/api/series/${path}`), fetched(`/api/events/${path}`)]);
      series = found;
      events = happened.events;
      errors.replaceChildren();
    } catch (error) {
      errors.replaceChildren(problem(error));
    }
    drawRows();
  }
  setInterval(() => (!state?.over || !events.length) && update(), AGAIN);
  document.addEventListener("visibilitychange", update);
  new ResizeObserver(() => drawRows()).observe(rows);

  function drawRows() {
    if (!state) return;
    const tasks = [...state.rows].sort((one, other) => ATTENTION.indexOf(one.state) - ATTENTION.indexOf(other.state) || byTask(one.task, other.task));
    rows.classList.toggle("many", tasks.length > 24);
    rows.classList.toggle("crowd", tasks.length > 80);
    const begins = Object.values(series.attempts);
    const from = Math.min(state.started, ...begins, ...events.slice(0, 1).map((event) => event.time));
    const to = state.finished && state.over ? Math.max(state.finished, ...state.rows.map((row) => row.finished ?? 0)) : Date.now() / 1000;
    const span = Math.max(10, to - from);
    const list = tasks.map((row) => {
      if (!made.has(row.task)) made.set(row.task, rowOf(name, row));
      const cell = made.get(row.task);
      fill(cell, row);
      paint(cell.querySelector("canvas"), row, from, span);
      return cell;
    });
    if (list.some((cell, at) => cell !== rows.children[at])) rows.replaceChildren(...list);
    redraw(axis, `${Math.round(from)} ${Math.round(to / 5)}`, () => [el("time", { title: whole(from) }, when(from)),
      el("span", {}, duration(span)), el("time", { title: whole(to) }, state.over ? when(to) : "now")]);
  }

  /** Draw what a task did between two times. */
  function paint(canvas, row, from, span) {
    const width = canvas.clientWidth;
    const height = canvas.clientHeight;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const style = getComputedStyle(document.documentElement);
    const colour = (kind) => style.getPropertyValue(`--${kind}`).trim();
    const draw = canvas.getContext("2d");
    draw.setTransform(ratio, 0, 0, ratio, 0, 0);
    draw.clearRect(0, 0, width, height);
    const x = (time) => ((time - from) / span) * width;
    const block = (start, end, kind) => {
      draw.fillStyle = colour(kind);
      draw.fillRect(x(start), 0, Math.max(1, x(end) - x(start)), height);
    };
    const own = events.filter((event) => event.task === row.task);
    const runs = [];
    for (const event of own) {
      if (event.event === "begin") runs.push({ start: event.time, end: null, how: "" });
      else if (event.event === "end" && runs.length) Object.assign(runs[runs.length - 1], { end: event.time, how: event.how });
    }
    if (!runs.length && row.started) runs.push({ start: row.started, end: row.finished, how: row.exit });
    for (const run of runs) block(run.start, run.end ?? row.finished ?? from + span, "run");
    const curve = series.curves[row.task];
    curve?.t.forEach((time, at) => {
      const start = at ? Math.max(curve.t[at - 1], time - span / 20) : time - 10;
      if ((curve.silent?.[at] ?? 0) > SILENT) block(start, time, "quiet");
      else if ((curve.gpu?.[at] ?? 100) < IDLE) block(start, time, "lazy");
    });
    if (row.state === "unknown") block(from + span * 0.98, from + span, "unknown");
    runs.forEach((run, at) => {
      draw.fillStyle = colour("again");
      if (at) draw.fillRect(x(run.start) - 1, 0, 2, height);
      const bad = run.how && !/^(exit code 0|SIGTERM)$/.test(run.how);
      draw.fillStyle = colour("fail");
      if (run.end && bad) draw.fillRect(x(run.end) - 3, 0, 3, height);
    });
  }
}

function rowOf(name, row) {
  return el("li", {}, el("a", { href: `/logs/${encodeURIComponent(name)}?task=${row.task}`, "data-row": "" },
    el("span", { class: "dot" }), el("span", { class: "task" }, row.task), el("canvas", { "aria-hidden": "true" }), el("span", { class: "value" })));
}

function fill(cell, row) {
  const gpus = row.gpus.filter((gpu) => gpu.use !== null);
  const use = gpus.length ? Math.round(gpus.reduce((sum, gpu) => sum + gpu.use, 0) / gpus.length) : null;
  const live = row.state === "running";
  const value = !live ? (row.exit || row.state) : row.silent > SILENT ? `silent ${duration(row.silent)}` : use !== null ? `GPU ${use} %` : row.cpu !== null ? `${row.cpu.toFixed(1)} cores` : "";
  const told = [row.task, `on ${row.host}`, row.state, row.how, row.restarts ? counted(row.restarts, "restart") : "",
    row.step !== null ? `step ${count(row.step)}` : "", row.memory !== null ? mib(row.memory) : "", row.cpu !== null ? `${row.cpu} cores` : "",
    use !== null ? `GPU ${use} %` : "", ...Object.entries(row.figures).map(([key, number]) => `${key} ${figure(number)}`)].filter(Boolean).join(" · ");
  redraw(cell.querySelector(".value"), value + row.restarts, () => [row.restarts ? el("b", { text: `↻${row.restarts} ` }) : "", value]);
  cell.className = row.state;
  cell.firstChild.title = told;
  cell.firstChild.setAttribute("aria-label", `${told}. Open its logs.`);
  cell.querySelector(".dot").className = `dot ${row.state}`;
}

function headOf(job) {
  const { progress } = job;
  const ended = hasEnded(job);
  const states = {};
  for (const row of job.rows) states[row.state] = (states[row.state] ?? 0) + 1;
  const silent = Object.entries(job.silent);
  const fact = (label, text, title) => el("div", {}, el("dt", { text: label }), el("dd", { text, title }));
  return [
    el("div", { class: "title" }, el("h1", { text: job.job }), badge(job.state), job.attempt > 1 ? el("span", { class: "quiet" }, `attempt ${job.attempt}`) : null),
    progress && progress.percent !== null ? el("div", { class: "big-bar" },
      el("progress", { max: 100, value: progress.percent, "aria-label": "Progress" }), el("b", { text: `${progress.percent.toFixed(progress.percent < 10 ? 1 : 0)} %` }),
      progress.left !== null ? el("span", {}, `${duration(progress.left)} left`) : null) : null,
    job.reason ? el("div", { class: job.state === "failed" ? "cause bad" : "cause" }, el("p", { text: job.reason }),
      ...job.why.map((text) => el("p", { text })),
      job.culprit ? el("p", {}, el("a", { href: `/logs/${encodeURIComponent(job.job)}?task=${job.culprit}` }, `What ${job.culprit} printed last`)) : null) : null,
    silent.length ? el("div", { class: "cause" }, el("p", { text: `${counted(silent.length, "host")} of this job ${silent.length === 1 ? "does" : "do"} not answer: ${silent[0][1]}` })) : null,
    el("dl", { class: "facts" },
      ...(progress?.step !== null && progress?.step !== undefined ? [fact("Step", progress.total ? `${count(progress.step)} of ${count(progress.total)}` : count(progress.step))] : []),
      ...(progress?.epoch ? [fact("Epoch", String(progress.epoch))] : []),
      ...(progress?.rate ? [fact("Rate", `${figure(progress.rate)} examples/s`)] : []),
      fact("Started", when(job.started), whole(job.started)),
      fact(ended ? "Lasted" : "For", duration((job.finished ?? Date.now() / 1000) - job.started)),
      fact("Tasks", Object.entries(states).map(([state, number]) => `${number} ${state}`).join(", ")),
      fact("Hosts", count(job.hosts)), fact("Strategy", job.strategy), fact("Stack", job.stack)),
  ].filter(Boolean);
}
