// The live tail, keys and the filter. Everything works without it; nothing here decides anything. No markup is ever made
// from strings: what is new comes as a document that the server rendered, without scripts (XMLHttpRequest).
"use strict";

const body = document.body, held = new Set();
let head = Number(body.dataset.head), shown = head, isFetching = false, isLeader = false;  // shown: all of it is seen

function say(word, text, live = document.getElementById("live")) {
  if (live && live.textContent !== text) { live.className = "live " + word; live.textContent = text; }
}

// A part of the page stays as it is while somebody points at it, has a field of it open, or may decide in it: what he
// read is what he signs.
function isHeld(part) {
  return part.querySelector("form.decide") || part.matches(":hover:not(#head, [data-polls])") || part.contains(document.activeElement) && part.querySelector("input, textarea, form");
}
function put(fresh) {
  document.title = fresh.title;
  for (const part of document.querySelectorAll("[data-live]")) {
    const other = fresh.getElementById(part.id);
    if (!other || other.isEqualNode(part)) { held.delete(part.id); continue; }
    if (isHeld(part)) { held.add(part.id); continue; }
    held.delete(part.id);
    const known = new Set([...part.querySelectorAll("[id]")].map((one) => one.id)), focused = document.activeElement?.closest("[id]")?.id;
    const copy = document.importNode(other, true), folds = copy.querySelectorAll("details");
    part.querySelectorAll("details").forEach((one, at) => { if (folds[at]) folds[at].open = one.open; });
    for (const one of copy.querySelectorAll("li[id], tr[id]")) if (!known.has(one.id)) one.classList.add("new");
    part.replaceWith(copy);
    if (focused && known.has(focused)) document.getElementById(focused)?.querySelector("[data-row], a")?.focus({ preventScroll: true });
  }
  filter();
}
function refresh() {
  if (isFetching || document.hidden || !(Number(body.dataset.head) < head)) return;
  isFetching = true;
  const asked = head, address = location.href, request = new XMLHttpRequest();
  request.open("GET", address);
  request.responseType = "document";
  request.onload = () => { if (request.status === 200 && request.response) { put(request.response); if (address === location.href) body.dataset.head = asked; if (!held.size) shown = asked; tell(); } };
  request.onloadend = () => { isFetching = false; if (request.status === 200) refresh(); };
  request.send();
}
function again() { body.dataset.head = -1; refresh(); }
function tell() { if ("follows" in body.dataset) say("on", held.size && head > shown ? "live, " + (head - shown) + " new" : "live"); }
function news(index) {
  if (index > head) head = index;
  tell();
  refresh();
}
function follow(channel) {
  // One tab holds the stream, since a browser opens six connections to one server; the others hear it from that one.
  let source, watch;
  isLeader = true;
  const open = () => {
    source?.close();
    source = new EventSource("/live");
    const alive = () => { clearTimeout(watch); watch = setTimeout(open, 25000); };
    source.onmessage = (event) => { alive(); channel.postMessage(event.data); news(Number(event.data)); };
    source.onerror = () => { const why = source.readyState === 2 ? "not let in" : "reconnecting"; say("lost", why); channel.postMessage(why); if (source.readyState === 2) { clearTimeout(watch); watch = setTimeout(open, 3000); } };
    alive();
  };
  open();
  return new Promise(() => {});
}

if ("follows" in body.dataset && "EventSource" in window) {
  const channel = new BroadcastChannel("deedbook");
  channel.onmessage = ({ data }) => {
    if (isFinite(data)) news(Number(data));
    else if (data !== "hello") say("lost", data);
    else if (isLeader) channel.postMessage(String(head));
  };
  channel.postMessage("hello");
  if (navigator.locks) navigator.locks.request("deedbook-live", () => follow(channel)); else follow(channel);
  document.addEventListener("visibilitychange", refresh);
  // What says how far something is, is asked for anew until it says so no more.
  setInterval(() => { if (document.querySelector("[data-polls]")) { again(); } }, 1000);
  document.addEventListener("mouseout", () => { if (held.size) { again(); } });
}
function filter() {
  const field = document.querySelector(".filter input"), text = field?.value.toLowerCase() ?? "";
  if (field) field.parentElement.hidden = false;
  for (const one of document.querySelectorAll("[data-filter]")) one.hidden = !one.textContent.toLowerCase().includes(text);
}
document.addEventListener("input", ({ target }) => {
  if (target.closest(".filter")) filter();
  if (!("scrub" in target.dataset)) return;
  // A slider through the log: the page follows while it moves, and its address can be shared.
  history.replaceState(null, "", "?" + new URLSearchParams(new FormData(target.form)));
  again();
});
// What unlocked the key stays with this origin: a cookie, which servers on other ports are sent, too, signs nothing.
const unlocked = /^#unlocked=([\w-]+)$/.exec(location.hash)?.[1];
if (unlocked) { localStorage.setItem("unlocked", unlocked); history.replaceState(null, "", location.pathname + location.search); }
document.addEventListener("submit", ({ target }) => { if (target.elements.proof) target.elements.proof.value = localStorage.getItem("unlocked"); });
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "Escape" && isTyping) event.target.blur();
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  const rows = [...document.querySelectorAll("[data-row]")], at = rows.indexOf(document.activeElement);
  const pages = document.querySelectorAll("header nav a");
  if (event.key === "j") rows[Math.min(at + 1, rows.length - 1)]?.focus();
  else if (event.key === "k") rows[Math.max(at - 1, 0)]?.focus();
  else if (event.key === "/") (document.getElementById("filter") ?? document.querySelector("[type=search]"))?.focus();
  else if (event.key === "?") document.getElementById("keys").showModal();
  else if (pages[Number(event.key) - 1]) pages[Number(event.key) - 1].click();
  else return;
  event.preventDefault();
});
// How long the key is still open: counted by what the server said, from when it said so.
const left = document.getElementById("left"), end = performance.now() + 1000 * left?.dataset.left;
function count() {
  const seconds = Math.max(0, Math.ceil((end - performance.now()) / 1000));
  left.textContent = seconds ? Math.floor(seconds / 60) + ":" + String(seconds % 60).padStart(2, "0") : "no longer";
  if (seconds) setTimeout(count, 1000);
}
if (left) count();
filter();
document.querySelector(".node.chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" });
