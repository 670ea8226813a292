// What the dashboard does beyond reading: it follows changes, keeps times right, and appends to logs.
// Every page works without it. It never builds HTML from text: pages come whole and escaped from the server.
"use strict";

(() => {
  const root = document.body.dataset.root;
  const button = document.getElementById("live");
  const said = document.getElementById("said");
  const SOONEST = 700; // milliseconds between two loads
  const POLLING = 4000; // without events
  const QUIET = 15000; // with events, in case one was missed
  const EVENTS = ["changed", "audit", "attempt", "reset", "move", "log", "progress", "run", "step"];

  let on = sessionStorage.getItem("holdfast-live") !== "off";
  let source = null;
  let loading = false;
  let again = false;
  let last = 0;
  let timer = 0;
  let drift = 0; // of this machine's clock against the server's
  let gone = false;
  let over = false; // nothing more will be told of what this page shows

  document.documentElement.classList.add("scripted");

  // Following changes

  function show(state, words) {
    if (!button) return;
    button.dataset.state = state;
    button.textContent = words;
    button.setAttribute("aria-pressed", String(on));
    button.title = on ? "The page follows changes. Press to hold it still." : "The page stands still. Press to follow changes.";
  }

  function listen() {
    if (!on || over || source || document.hidden || !document.querySelector("[data-live], [data-append]")) return;
    source = new EventSource(document.body.dataset.events);
    source.onopen = () => { show("live", "Live"); };
    source.onerror = () => { if (on && source) show("polling", "Live, by polling"); };
    for (const name of EVENTS) source.addEventListener(name, soon);
    source.addEventListener("end", () => { over = true; hush(); show("live", "Live"); soon(); });
  }

  function hush() {
    if (source) source.close();
    source = null;
  }

  function soon() {
    if (!on || document.hidden) return;
    if (loading) { again = true; return; }
    clearTimeout(timer);
    timer = setTimeout(load, Math.max(0, last + SOONEST - Date.now()));
  }

  async function load() {
    loading = true;
    last = Date.now();
    try {
      await Promise.all([renew(), append()]);
      if (gone) { gone = false; show(over || (source && source.readyState === EventSource.OPEN) ? "live" : "polling", "Live"); }
    } catch (error) {
      gone = true;
      show("lost", "No answer");
    }
    loading = false;
    if (again) { again = false; soon(); } else { wait(); }
  }

  function wait() {
    clearTimeout(timer);
    if (!on || document.hidden) return;
    const open = over || (source && source.readyState === EventSource.OPEN);
    const every = document.querySelector("[data-every]"); // what no event tells of
    timer = setTimeout(load, every ? Number(every.dataset.every) : open ? QUIET : POLLING);
  }

  async function renew() {
    const parts = document.querySelectorAll("[data-live]");
    if (!parts.length || typing()) return;
    const answer = await fetch(location.href, { headers: { Accept: "text/html" }, credentials: "same-origin" });
    if (!answer.ok) throw new Error(String(answer.status));
    const date = Date.parse(answer.headers.get("date") || "");
    if (date) drift = Math.abs(date - Date.now()) > 3000 ? date - Date.now() : 0;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (!on || typing() || selecting()) return;
    for (const part of parts) {
      const next = page.getElementById(part.id);
      if (next) morph(part, next);
    }
  }

  // Somebody is in the middle of something: what they write or mark is left alone.
  function typing() {
    const here = document.activeElement;
    return Boolean(here && here.closest("[data-live]") && /^(INPUT|SELECT|TEXTAREA)$/.test(here.tagName));
  }

  function selecting() {
    const marked = document.getSelection();
    return Boolean(marked && !marked.isCollapsed && marked.anchorNode && marked.anchorNode.parentElement && marked.anchorNode.parentElement.closest("[data-live]"));
  }

  // Make one tree like another and keep every node that stays: focus, scrolling and open details with it.
  function morph(old, next) {
    for (const { name } of [...old.attributes]) {
      if (!next.hasAttribute(name) && !(name === "open" && old.tagName === "DETAILS")) old.removeAttribute(name);
    }
    for (const { name, value } of next.attributes) {
      if (old.getAttribute(name) !== value && !(name === "open" && old.tagName === "DETAILS")) old.setAttribute(name, value);
    }
    if (old.hasAttribute("data-append")) return;
    const known = new Map();
    for (const child of old.children) if (child.id) known.set(child.id, child);
    let place = old.firstChild;
    for (const child of [...next.childNodes]) {
      let found = child.id && known.get(child.id);
      if (!found && place && !place.id && !child.id && place.nodeType === child.nodeType && place.nodeName === child.nodeName) found = place;
      if (!found) {
        old.insertBefore(document.importNode(child, true), place);
        continue;
      }
      if (found === place) place = place.nextSibling;
      else old.insertBefore(found, place);
      if (found.nodeType === Node.ELEMENT_NODE) morph(found, child);
      else if (found.nodeValue !== child.nodeValue) found.nodeValue = child.nodeValue;
    }
    while (place) {
      const following = place.nextSibling;
      place.remove();
      place = following;
    }
  }

  // Logs only grow: what is new is asked for and put behind the rest.
  async function append() {
    for (const list of document.querySelectorAll("[data-append]")) {
      for (let more = true; more;) {
        const address = `${list.dataset.append}?after=${encodeURIComponent(list.dataset.after)}`;
        const answer = await fetch(address, { headers: { Accept: "text/html" }, credentials: "same-origin" });
        if (!answer.ok) throw new Error(String(answer.status));
        const lines = new DOMParser().parseFromString(await answer.text(), "text/html").querySelectorAll("li");
        const box = list.closest("[data-follow]");
        const below = box && box.scrollHeight - box.scrollTop - box.clientHeight < 40;
        for (const line of lines) {
          list.append(document.importNode(line, true));
          list.dataset.after = line.dataset.id;
        }
        const empty = lines.length && box && box.querySelector("[data-empty]");
        if (empty) empty.remove();
        if (below && lines.length) box.scrollTop = box.scrollHeight;
        more = lines.length >= 500 && !document.hidden;
      }
    }
  }

  // Times that go on by themselves

  const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

  function span(seconds) {
    for (const [size, unit] of UNITS) if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
    if (seconds >= 10) return `${Math.round(seconds)} s`;
    return seconds >= 1 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds * 1000)} ms`;
  }

  function tick() {
    if (document.hidden || !on) return;
    const now = Date.now() + drift;
    for (const time of document.querySelectorAll("time[data-relative], time[data-span]")) {
      const seconds = (Date.parse(time.dateTime) - now) / 1000;
      let words;
      if (time.hasAttribute("data-span")) words = span(Math.max(0, -seconds));
      else words = Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `in ${span(seconds)}` : `${span(-seconds)} ago`;
      if (time.textContent !== words) time.textContent = words;
    }
  }

  // Keys and buttons

  if (button) {
    button.addEventListener("click", () => {
      on = !on;
      sessionStorage.setItem("holdfast-live", on ? "on" : "off");
      if (on) { show(over ? "live" : "polling", "Live"); listen(); soon(); said.textContent = "The page follows changes."; }
      else { hush(); clearTimeout(timer); show("off", "Held still"); said.textContent = "The page stands still."; }
    });
  }

  document.addEventListener("keydown", (event) => {
    const find = document.getElementById("find");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || !find) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    find.focus();
  });

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { hush(); clearTimeout(timer); } else { listen(); soon(); }
  });
  addEventListener("pagehide", hush);
  addEventListener("pageshow", (event) => { if (event.persisted) { listen(); soon(); } });

  // What was asked for empty is not put into the address.
  for (const form of document.querySelectorAll("form.filter")) {
    form.addEventListener("formdata", (event) => {
      for (const [name, value] of [...event.formData]) if (value === "") event.formData.delete(name);
    });
  }

  for (const box of document.querySelectorAll("[data-follow]")) box.scrollTop = box.scrollHeight;

  show(on ? "polling" : "off", on ? "Live" : "Held still");
  listen();
  setInterval(tick, 1000);
  wait();
  if (document.querySelector("[data-append]")) soon();
})();
