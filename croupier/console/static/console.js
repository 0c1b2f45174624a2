// Keeps a page up to date. All of it can be read without this script, too.
"use strict";

// What is drawn anew keeps its elements where they have not changed, so that focus and place in the page stay.
function renew(old, fresh) {
  if (old.isEqualNode(fresh)) return;
  if (old.nodeName !== fresh.nodeName || old.childNodes.length !== fresh.childNodes.length) {
    old.replaceWith(fresh);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    old.data = fresh.data;
    return;
  }
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const pairs = [...old.childNodes].map((child, index) => [child, fresh.childNodes[index]]);
  for (const [child, other] of pairs) renew(child, other);
}

function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

// A screen reader hears that a round is in another stage, and not every number.
let said = "";
function say(text) {
  if (text && text !== said) document.getElementById("said").textContent = text;
  said = text || said;
}

async function load(place) {
  try {
    const answer = await fetch(place.dataset.load);
    const found = parsed(await answer.text()).querySelector("[data-fragment]");
    if (found) place.replaceChildren(...found.childNodes);
    place.setAttribute("data-loaded", "");
  } catch {
    // The link to the page of its own stays.
  }
}

function follow(place) {
  const events = new EventSource(place.dataset.events);
  events.onmessage = async ({ data }) => {
    const fresh = parsed(data).body.firstElementChild;
    const stage = fresh.querySelector("[data-say]");
    if (place.firstElementChild) renew(place.firstElementChild, fresh);
    else place.append(fresh);
    if (stage) say(stage.dataset.say);
    place.setAttribute("data-live", "");
    if (!place.querySelector("[data-finished]")) return;
    events.close();
    const result = parsed(await (await fetch(location.href)).text());
    document.title = result.title;
    document.getElementById("main").replaceChildren(...result.getElementById("main").childNodes);
    begin();
  };
}

function begin() {
  for (const place of document.querySelectorAll("[data-load]:not([data-loaded])")) load(place);
  for (const place of document.querySelectorAll("[data-events]")) follow(place);
}

begin();
document.querySelector("[role=alert]")?.scrollIntoView({ block: "nearest" });
