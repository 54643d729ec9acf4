// Puts fragments of HTML that the server made into the page. Without it pages work, but do not change by themselves.
"use strict";

(() => {
  const HEADERS = { "X-Ekiden-Live": "1" };

  // Put each element of `html` in the place of the one with its id, or into the element that `data-into` names.
  function show(html) {
    const holder = document.createElement("template");
    holder.innerHTML = html;
    for (const fresh of [...holder.content.children]) {
      const old = fresh.id && document.getElementById(fresh.id);
      if (old) {
        // What has the same `data-keep` stays: somebody may be typing in it.
        if (!fresh.dataset.keep || fresh.dataset.keep !== old.dataset.keep) swap(old, fresh);
        continue;
      }
      const place = document.getElementById(fresh.dataset.into || "");
      if (!place) continue;
      fresh.classList.add("arrived");
      if (fresh.dataset.at === "start") place.prepend(fresh);
      else place.append(fresh);
      trim(place, fresh.dataset.at);
    }
  }

  // Keep what the user is doing: focus, the cursor in a field, open details.
  function swap(old, fresh) {
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    for (const opened of old.querySelectorAll("details[open][id]")) {
      const same = fresh.querySelector("#" + CSS.escape(opened.id));
      if (same) same.open = true;
    }
    if (old.tagName === "DETAILS" && old.open) fresh.open = true;
    old.replaceWith(fresh);
    const again = focused && focused.id && document.getElementById(focused.id);
    if (!again) return;
    if ("value" in focused && "value" in again && focused.type !== "submit") again.value = focused.value;
    again.focus({ preventScroll: true });
    if (typeof focused.selectionStart === "number") again.setSelectionRange(focused.selectionStart, focused.selectionEnd);
  }

  // A list with `data-most` keeps only so many entries.
  function trim(place, at) {
    const most = Number(place.dataset.most || 0);
    while (most && place.children.length > most) (at === "start" ? place.lastElementChild : place.firstElementChild).remove();
  }

  // <main data-live="/calls/events">: listen for changes while the page is open and in front.
  function listen(element) {
    let source = null;
    const state = document.getElementById("live-state");
    const tell = (words) => { if (state && state.textContent !== words) state.textContent = words; };
    const open = () => {
      if (source || document.hidden) return;
      source = new EventSource(element.dataset.live);
      source.addEventListener("open", () => tell("live"));
      source.addEventListener("error", () => tell("connection lost, trying again"));
      source.addEventListener("fragment", (event) => show(event.data));
      source.addEventListener("gone", (event) => document.getElementById(event.data)?.remove());
      source.addEventListener("reload", () => location.reload());
    };
    const close = () => { source?.close(); source = null; };
    document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  }

  // <form data-swap>: send it without leaving the page; the answer is fragments. A GET form changes the address, too.
  async function send(form, button) {
    const data = new URLSearchParams(new FormData(form, button));
    // Not `form.action` and `form.method`: a button of that name would stand in their place.
    const isGet = (form.getAttribute("method") ?? "get").toLowerCase() === "get";
    const action = new URL(form.getAttribute("action") ?? "", location.href);
    if (isGet) action.search = data;
    const url = action.href;
    form.setAttribute("aria-busy", "true");
    try {
      const answer = await fetch(url, isGet ? { headers: HEADERS } : { method: "POST", body: data, headers: HEADERS });
      if (answer.redirected) location.assign(answer.url);
      else show(await answer.text());
      if (isGet) history.replaceState(null, "", url);
    } catch {
      HTMLFormElement.prototype.submit.call(form); // The browser shows its own page about what went wrong.
    } finally {
      form.removeAttribute("aria-busy");
    }
  }

  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-swap]")) return;
    event.preventDefault();
    send(event.target, event.submitter);
  });

  // <form data-swap="input"> is sent while one types.
  let typing = 0;
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (!form || form.dataset.swap !== "input") return;
    clearTimeout(typing);
    typing = setTimeout(() => send(form, null), 250);
  });

  // <button data-copy="element-id"> copies its text.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
    const words = button.textContent;
    button.textContent = "copied";
    setTimeout(() => { button.textContent = words; }, 1500);
  });

  for (const element of document.querySelectorAll("[data-live]")) listen(element);
})();
