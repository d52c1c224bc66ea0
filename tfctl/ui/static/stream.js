// What the server sends: streams of events, and JSON. A hidden tab closes its streams: browsers allow six at once.

const status = document.getElementById("connection");

function say(text) {
  if (status.textContent !== text) status.textContent = text;
}

/** Follow a stream. `handlers`: a function for each event. Returns a function that ends it.
 *  `again`: whether to open it again when it breaks, or when the tab is shown again. */
export function follow(url, handlers, { again = true, opened = () => {} } = {}) {
  let source = null;
  let ended = false;

  function open() {
    if (ended || source || document.hidden) return;
    const address = typeof url === "function" ? url() : url;
    source = new EventSource(address);
    source.onopen = () => {
      say("");
      opened();
    };
    source.onerror = () => {
      if (!source) return;
      if (!again) {
        close();
        handlers.broken?.();
        return;
      }
      say("No connection to tfctl ui. It may have ended: start it again with tfctl ui.");
      if (source.readyState === EventSource.CLOSED) {
        close();
        setTimeout(open, 2000);
      }
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => event.data && handle(JSON.parse(event.data)));
    }
  }

  function close() {
    source?.close();
    source = null;
  }

  const look = () => (document.hidden && again ? close() : open());
  document.addEventListener("visibilitychange", look);
  open();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", look);
    close();
  };
}

/** Fetch JSON. Returns it, or throws an object with message and remedy. */
export async function fetched(url) {
  let answer;
  try {
    answer = await fetch(url);
  } catch {
    throw { message: "tfctl ui does not answer", remedy: "start it again: tfctl ui" };
  }
  if (!answer.headers.get("content-type")?.startsWith("application/json")) {
    throw { message: await answer.text(), remedy: "" };
  }
  const value = await answer.json();
  if (value.error) throw value.error;
  return value;
}
