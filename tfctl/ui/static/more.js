// The view "More": events, the record of the job, TF_CONFIG, units and versions.

import { badge, el, empty, problem, query, redraw, when, whole, byTask } from "./dom.js";
import { fetched } from "./stream.js";

const TABS = [["events", "Events"], ["record", "Record"], ["tf_config", "TF_CONFIG"], ["unit", "Unit"], ["versions", "Versions"]];

export function more(main, job, followJob) {
  const path = encodeURIComponent(job);
  const tab = TABS.some(([key]) => key === query.get("tab")) ? query.get("tab") : "events";
  const body = el("section", { "aria-label": TABS.find(([key]) => key === tab)[1] }, empty("Asking the hosts …"));
  main.replaceChildren(
    el("nav", { class: "tabs", "aria-label": "Parts" }, ...TABS.map(([key, label]) =>
      el("a", { href: `/more/${path}?tab=${key}`, "aria-current": key === tab ? "page" : null, "data-row": "" }, label))),
    body);
  let key = "";
  let attempt = 0;
  followJob((state) => {
    if (state.error) {
      body.replaceChildren(problem({ message: state.error, remedy: state.remedy }));
      return;
    }
    const now = JSON.stringify([state.attempt, state.state, state.rows.map((row) => [row.state, row.restarts])]);
    attempt = state.attempt;
    if (now !== key) show();
    key = now;
  });

  async function show() {
    try {
      if (tab === "events") drawEvents(await fetched(`/api/events/${path}`));
      else drawFiles(await fetched(`/api/files/${path}`));
    } catch (error) {
      body.replaceChildren(problem(error));
    }
  }

  function drawEvents({ events, errors }) {
    redraw(body, JSON.stringify([events, errors]), () => [
      ...errors.map(problem),
      events.length ? el("table", { class: "events" }, el("caption", { class: "unseen", text: "Events" }),
        el("thead", {}, el("tr", {}, ...["Time", "Attempt", "Task", "Host", "Event", "How"].map((head, at) => el("th", { scope: "col", class: ["", "number wide", "", "wide"][at] }, head)))),
        el("tbody", {}, ...[...events].reverse().map((event) => el("tr", {},
          el("td", { class: "number", title: whole(event.time) }, when(event.time)), el("td", { class: "number wide" }, String(event.attempt)),
          el("td", {}, event.task && event.attempt === attempt ? el("a", { href: `/logs/${path}?t=${event.time}&task=${event.task}`, "data-row": "" }, event.task) : event.task),
          el("td", { class: "wide" }, event.host), el("td", {}, badge(event.event)), el("td", { class: "reason" }, event.how)))))
        : empty("Nothing has happened to this job yet."),
    ]);
  }

  function drawFiles(found) {
    const errors = found.errors.map(problem);
    if (tab === "record") body.replaceChildren(...errors, code(JSON.stringify(found.record, null, 2)));
    else if (tab === "versions") {
      body.replaceChildren(...errors, el("dl", { class: "facts" }, ...Object.entries(found.versions).map(([name, value]) => el("div", {}, el("dt", { text: name }), el("dd", { text: value })))));
    } else drawTasks(found, errors);
  }

  function drawTasks(found, errors) {
    const names = Object.keys(found.tasks).filter((name) => found.tasks[name][tab]).sort(byTask);
    if (!names.length) {
      body.replaceChildren(...errors, tab === "unit" ? empty("No host has the units of this job any more.")
        : empty("The tasks of this job have no TF_CONFIG: its strategy does not use it. All files of a job: ", `tfctl render job.yaml`));
      return;
    }
    const shown = el("div");
    const choice = el("select", { "aria-label": "Task" }, ...names.map((name) => el("option", { value: name }, name)));
    const draw = () => {
      const text = found.tasks[choice.value][tab];
      shown.replaceChildren(code(tab === "tf_config" ? indented(text) : text));
      query.set({ task: choice.value });
    };
    if (names.includes(query.get("task"))) choice.value = query.get("task");
    choice.addEventListener("change", draw);
    body.replaceChildren(...errors, el("p", { class: "tools" }, el("label", {}, "Task ", choice)), shown);
    draw();
  }
}

function code(text) {
  return el("pre", { class: "code", tabindex: 0, text });
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
