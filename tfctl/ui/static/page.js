// Begins the view that the URL names, and handles the keys that all views share.

import { badge, el, empty, hasEnded } from "./dom.js";
import { follow } from "./stream.js";

const [view, name] = location.pathname.slice(1).split("/");
const main = document.getElementById("view");
const help = document.getElementById("help");
const KEPT = "tfctl-job";

/** The job that the links lead to: that of the URL, else the one shown last in this tab. */
const job = name ? decodeURIComponent(name) : sessionStorage.getItem(KEPT);
if (name) sessionStorage.setItem(KEPT, job);

for (const link of document.querySelectorAll("nav a")) {
  const target = link.getAttribute("href").slice(1);
  if (target === view) link.setAttribute("aria-current", "page");
  if (target !== "cluster" && job) link.href = `/${target}/${encodeURIComponent(job)}`;
}

/** Show the job and its state in the header, and pass each state on to those who wait for it. */
function followJob(listener) {
  const subject = document.getElementById("subject");
  return follow(`/stream/job/${encodeURIComponent(job)}`, {
    state(value) {
      subject.replaceChildren(...(value.error ? [job] : [el("b", { text: value.job }), badge(value.state)]));
      listener(value);
    },
  });
}

async function begin() {
  document.title = name ? `${job} · ${view} · tfctl` : "Cluster · tfctl";
  if (view === "cluster") {
    const { cluster } = await import("./cluster.js");
    cluster(main);
    title("Cluster");
    return;
  }
  if (!name && job) {
    location.replace(`/${view}/${encodeURIComponent(job)}`);
    return;
  }
  if (!name) {
    chooseJob();
    return;
  }
  const module = await import(`./${view}.js`);
  module[view](main, job, followJob);
  if (view !== "job") title(`${document.querySelector("nav a[aria-current]").textContent} of ${job}`);
}

/** The heading of a view that shows none. */
function title(text) {
  main.before(el("h1", { class: "unseen", text }));
}

/** Without a job, go to the one that runs or, if there are several or none, ask. */
function chooseJob() {
  main.replaceChildren(empty("Looking for jobs …"));
  const end = follow("/stream/cluster", {
    state({ jobs }) {
      if (!jobs) return;
      end();
      const going = jobs.filter((each) => !hasEnded(each));
      const only = going.length === 1 ? going[0] : jobs.length === 1 ? jobs[0] : null;
      if (only) location.replace(`/${view}/${encodeURIComponent(only.job)}`);
      else if (!jobs.length) main.replaceChildren(empty("No host has a job. Start one: ", "tfctl start job.yaml"));
      else {
        main.replaceChildren(
          el("h1", { text: "Which job?" }),
          el("ul", { class: "choice" }, ...jobs.map((each) => el("li", {},
            el("a", { href: `/${view}/${encodeURIComponent(each.job)}`, "data-row": "" }, each.job), badge(each.state)))),
        );
      }
    },
  });
}

// Keys.

let going = 0;
const PLACES = { c: "cluster", j: "job", l: "logs", u: "curves", m: "more" };

function move(step) {
  const rows = [...main.querySelectorAll("[data-row]")].filter((row) => row.offsetParent !== null);
  if (!rows.length) return;
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))].focus();
}

addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, textarea, select");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && typing) {
    event.preventDefault(); // a browser would also clear the field, which ends the search
    event.target.blur();
  }
  if (typing || help.open) return;
  if (Date.now() - going < 1500 && PLACES[event.key]) {
    going = 0;
    event.preventDefault();
    [...document.querySelectorAll("nav a")].find((link) => link.textContent.toLowerCase() === PLACES[event.key]).click();
    return;
  }
  const key = new CustomEvent("key", { detail: event.key, cancelable: true });
  if (!main.dispatchEvent(key)) event.preventDefault();
  else if (event.key === "g") going = Date.now();
  else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
  else if (event.key === "?") help.showModal();
  else if (event.key === "/") {
    const field = main.querySelector("input[type=search]");
    if (!field) return;
    event.preventDefault();
    field.focus();
    field.select();
  }
});
document.getElementById("keys").addEventListener("click", () => help.showModal());

begin();
