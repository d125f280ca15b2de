// The page: what is after # in the address says which of the views is shown.

import { ask } from "./api.js";
import { element, say } from "./dom.js";
import { showGroup, showGroups, showTopic, showTopics } from "./pages.js";

const main = document.getElementById("main");
let current = new AbortController();

/** Return the view, name and parameters of an address such as #/topics/clicks?partition=0. */
function route(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [view, name] = path.split("/");
  return { view: view || "topics", name: name ? decoded(name) : null, parameters: new URLSearchParams(query) };
}

function decoded(name) {
  try {
    return decodeURIComponent(name);
  } catch {
    return name; // an address that somebody has changed
  }
}

async function show() {
  current.abort();
  current = new AbortController();
  const { signal } = current;
  const { view, name, parameters } = route(location.hash);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.page === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  say("Loading …");
  try {
    const showing = view === "groups" ? (name ? showGroup : showGroups) : (name ? showTopic : showTopics);
    const content = await showing(name, parameters, signal);
    if (signal.aborted) return;
    document.title = `${name ?? (view === "groups" ? "Groups" : "Topics")} – commitlog`;
    main.replaceChildren(...content);
    say("");
  } catch (error) {
    if (signal.aborted) return;
    main.replaceChildren(element("h1", {}, name ?? "commitlog"), element("p", { class: "fault", role: "alert" }, error.message));
    say("");
  }
  main.focus({ preventScroll: true });
}

async function start() {
  addEventListener("hashchange", show);
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address says what is shown
    main.focus();
  });
  await show();
  const { url, version, principal, masked } = await ask("root");
  document.getElementById("root").textContent =
    `${url}${principal ? ` as ${principal}` : ""}${masked.length ? `, masked: ${masked.join(", ")}` : ""} (version ${version})`;
}

start().catch((error) => say(error.message));
