// Keeps an open page up to date: when the server says that there is news, the same address is
// fetched again, and what differs is changed in place, so that focus, scroll and open parts stay.
"use strict";

(function () {
  const topic = document.body.dataset.topic;
  const stale = document.getElementById("stale");
  let tag = "";
  let busy = false;
  let again = false;

  function key(node) {
    return node.nodeType === Node.ELEMENT_NODE ? node.id || node.dataset.key || "" : "";
  }

  function alike(a, b) {
    return a.nodeType === b.nodeType && a.nodeName === b.nodeName && key(a) === key(b);
  }

  function takeAttributes(from, to) {
    for (const { name, value } of Array.from(from.attributes)) {
      if (to.getAttribute(name) !== value) to.setAttribute(name, value);
    }
    for (const { name } of Array.from(to.attributes)) {
      if (name !== "open" && !from.hasAttribute(name)) to.removeAttribute(name);
    }
  }

  // Makes `to` like `from`; what the user is typing in stays as it is.
  function morph(from, to) {
    if (to.nodeType !== Node.ELEMENT_NODE) {
      if (to.nodeValue !== from.nodeValue) to.nodeValue = from.nodeValue;
      return;
    }
    if (to.matches("form, dialog") && to.contains(document.activeElement)) return;
    takeAttributes(from, to);
    const kept = new Map();
    for (const child of Array.from(to.childNodes)) if (key(child)) kept.set(key(child), child);
    let place = to.firstChild;
    for (const child of Array.from(from.childNodes)) {
      const known = key(child) && kept.get(key(child));
      if (known && alike(child, known)) {
        if (known !== place) to.insertBefore(known, place);
        else place = place.nextSibling;
        morph(child, known);
      } else if (place && alike(child, place)) {
        const next = place.nextSibling;
        morph(child, place);
        place = next;
      } else {
        to.insertBefore(document.importNode(child, true), place);
      }
    }
    while (place) {
      const next = place.nextSibling;
      place.remove();
      place = next;
    }
  }

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      const headers = tag ? { "If-None-Match": tag } : {};
      const answer = await fetch(location.href, { headers, credentials: "same-origin" });
      if (answer.status === 200) {
        tag = answer.headers.get("ETag") || "";
        const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
        const main = fresh.querySelector("main");
        if (main) morph(main, document.querySelector("main"));
      }
      stale.hidden = answer.status === 200 || answer.status === 304;
    } catch (error) {
      stale.hidden = false;
    }
    busy = false;
    if (again) {
      again = false;
      setTimeout(refresh, 500);
    }
  }

  function listen() {
    const news = new EventSource("/events?of=" + encodeURIComponent(topic));
    let first = true;
    news.addEventListener("news", function () {
      if (!first && !document.hidden) refresh();
      first = false;
    });
    news.addEventListener("error", function () {
      stale.hidden = false;
      // The browser tries again by itself, unless it was refused.
      if (news.readyState === EventSource.CLOSED) setTimeout(listen, 30000);
      first = false;
    });
    news.addEventListener("open", function () {
      stale.hidden = true;
    });
    document.addEventListener("visibilitychange", function () {
      if (!document.hidden) refresh();
    });
  }

  for (const select of document.querySelectorAll("form.filter select")) {
    select.addEventListener("change", function () {
      select.form.requestSubmit();
    });
  }
  if (topic) listen();
})();
