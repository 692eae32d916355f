"use strict";
// Without this script a page says the same: points have the browser's own tooltips, and details are opened one by one.
(() => {
  const REACH = 24; // pixels from the pointer within which a point is meant

  function readPoints(svg) {
    return [...svg.querySelectorAll("title")].map((title) => {
      const mark = title.parentNode;
      const [x, y] = mark.getAttribute("d").slice(1, -2).split(" ").map(Number);
      const point = { x, y, mark, text: title.textContent, rank: Number(mark.dataset.rank || 0) };
      title.remove(); // or the browser would show a second tooltip
      return point;
    });
  }

  function setUp(plot) {
    const svg = plot.querySelector("svg");
    const tip = plot.querySelector(".tip");
    const hint = plot.parentNode.querySelector(".hint");
    const points = readPoints(svg);
    const ranked = points.filter((point) => point.rank).sort((a, b) => a.rank - b.rank);
    const { width, height } = svg.viewBox.baseVal;
    const here = document.createElementNS(svg.namespaceURI, "g");
    here.setAttribute("class", "here");
    let place = -1; // in `ranked`

    function show(point) {
      const { x, y, mark, text } = point;
      const copies = ["here-ring", "here-gap", mark.getAttribute("class")].map((look) => {
        const copy = mark.cloneNode();
        copy.setAttribute("class", look);
        return copy;
      });
      here.replaceChildren(...copies);
      svg.append(here);
      tip.textContent = text;
      tip.style.left = x < width / 2 ? `${(100 * x) / width}%` : "auto";
      tip.style.right = x < width / 2 ? "auto" : `${100 - (100 * x) / width}%`;
      tip.style.top = y < height / 2 ? `${(100 * y) / height}%` : "auto";
      tip.style.bottom = y < height / 2 ? "auto" : `${100 - (100 * y) / height}%`;
      tip.hidden = false;
    }

    function hide() {
      tip.hidden = true;
      here.remove();
    }

    function point(event) {
      const box = svg.getBoundingClientRect();
      const scale = box.width / width;
      const [x, y] = [(event.clientX - box.left) / scale, (event.clientY - box.top) / scale];
      let nearest = null;
      let least = (REACH / scale) ** 2;
      for (const one of points) {
        const distance = (one.x - x) ** 2 + (one.y - y) ** 2;
        if (distance <= least) [nearest, least] = [one, distance]; // of equals the last, which is drawn on top
      }
      if (nearest) show(nearest);
      else hide();
    }

    function step(event) {
      const last = ranked.length - 1;
      const next = {
        ArrowRight: Math.min(place + 1, last),
        ArrowDown: Math.min(place + 1, last),
        ArrowLeft: Math.max(place - 1, 0),
        ArrowUp: Math.max(place - 1, 0),
        Home: 0,
        End: last,
      }[event.key];
      if (event.key === "Escape") hide();
      if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault(); // or the page would scroll
      place = next;
      show(ranked[place]);
    }

    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    hint.hidden = false;
    if (!ranked.length) return;
    plot.tabIndex = 0;
    plot.setAttribute("aria-describedby", hint.id);
    plot.addEventListener("keydown", step);
    plot.addEventListener("blur", hide);
  }

  document.querySelectorAll(".plot").forEach(setUp);

  const details = [...document.querySelectorAll("section > details")];
  const all = document.getElementById("open-all");
  if (all) {
    const isOpen = () => details.every((one) => one.open);
    const name = () => (all.textContent = isOpen() ? "Close all" : "Open all");
    all.addEventListener("click", () => {
      const open = !isOpen();
      details.forEach((one) => (one.open = open));
      name();
    });
    details.forEach((one) => one.addEventListener("toggle", name));
    all.hidden = false;
  }

  function reveal() {
    const heading = document.getElementById(location.hash.slice(1));
    const closed = heading && heading.closest("section > details:not([open])");
    if (closed) closed.open = true;
    if (heading) heading.scrollIntoView();
  }
  addEventListener("hashchange", reveal);
  reveal();

  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    opened.forEach((one) => (one.open = true));
  });
  addEventListener("afterprint", () => opened.forEach((one) => (one.open = false)));
})();
