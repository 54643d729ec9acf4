// What the theme leaves out for people who use the keyboard or a screen reader.
(() => {
  const mend = () => {
    document.querySelectorAll(".md-code__nav:not([aria-label])").forEach((nav, at) =>
      nav.setAttribute("aria-label", `Code ${at + 1}`));
    document.querySelectorAll("pre > code:not([tabindex]), .md-typeset__scrollwrap:not([tabindex])").forEach((box) =>
      box.setAttribute("tabindex", "0"));
    document.querySelectorAll("th:empty").forEach((corner) => corner.replaceWith(document.createElement("td")));
    document.querySelector(".md-version__current[aria-label]")?.removeAttribute("aria-label");
    document.querySelector(".md-nav--primary")?.setAttribute("aria-label", "Pages");
  };
  new MutationObserver(mend).observe(document.documentElement, { childList: true, subtree: true });
  mend();
})();
