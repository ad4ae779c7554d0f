// Zoom by a click or Enter, search by text or /pattern/, Escape undoes both. Arrow keys move between boxes.
const graph = document.getElementById("graph");
let inner = width - 2 * side;
let shown;
const frames = [...document.querySelectorAll(".f")].map((group) => ({
  group,
  depth: Number(group.dataset.d),
  start: Number(group.dataset.x),
  width: Number(group.dataset.w),
  name: group.dataset.n,
  about: group.querySelector("title").textContent,
  box: group.querySelector("rect"),
  text: group.querySelector("text"),
}));
const about = document.getElementById("about");
const search = document.getElementById("search");
const found = document.getElementById("found");
const reset = document.getElementById("reset");
const tiny = 1e-9;

function fitted(name, room) {
  const letters = [...name];
  if (letters.length <= room) return name;
  return room < 3 ? "" : letters.slice(0, room - 1).join("") + "…";
}

function zoom(to) {
  shown = to;
  for (const frame of frames) {
    const outer = frame.depth < to.depth && frame.start <= to.start + tiny && frame.start + frame.width >= to.start + to.width - tiny;
    const inside = frame.start >= to.start - tiny && frame.start + frame.width <= to.start + to.width + tiny && frame.depth >= to.depth;
    frame.group.classList.toggle("up", outer);
    frame.group.style.display = outer || inside ? "" : "none";
    if (!outer && !inside) continue;
    const x = outer ? 0 : ((frame.start - to.start) / to.width) * inner;
    const wide = outer ? inner : (frame.width / to.width) * inner;
    frame.box.setAttribute("x", side + x);
    frame.box.setAttribute("width", Math.max(wide - 0.4, 0.2));
    frame.text.setAttribute("x", side + x + margin / 2);
    frame.text.textContent = fitted(frame.name, Math.floor((wide - margin) / character));
  }
  reset.classList.toggle("on", to.depth > 0);
}

function pattern(text) {
  const between = text.match(/^\/(.+)\/(i?)$/);
  if (!between) return (name) => name.toLowerCase().includes(text.toLowerCase());
  try {
    const expression = new RegExp(between[1], between[2]);
    return (name) => expression.test(name);
  } catch {
    return () => false;
  }
}

function look() {
  const text = search.value.trim();
  const matches = text ? pattern(text) : () => false;
  const hits = [];
  for (const frame of frames) {
    const hit = frame.depth > 0 && matches(frame.name);
    frame.group.classList.toggle("hit", hit);
    if (hit) hits.push(frame);
  }
  // A match within another one is part of that one.
  hits.sort((a, b) => a.start - b.start || b.width - a.width);
  let share = 0;
  let until = -1;
  for (const hit of hits) {
    if (hit.start >= until - tiny) {
      share += hit.width;
      until = hit.start + hit.width;
    }
  }
  found.textContent = text ? `${hits.length} boxes, ${(share * 100).toFixed(2)}%` : "";
}

// One box is in the order of the tab key; arrow keys move the focus to others.
let current = frames[0];
function focus(frame) {
  if (!frame) return;
  current.group.setAttribute("tabindex", "-1");
  current = frame;
  current.group.setAttribute("tabindex", "0");
  current.group.focus();
}
const drawn = (frame) => frame.group.style.display !== "none";
const contains = (outer, inner) => outer.start <= inner.start + tiny && outer.start + outer.width >= inner.start + inner.width - tiny;
const widest = (all) => all.reduce((best, frame) => (best && best.width >= frame.width ? best : frame), undefined);
const moves = {
  ArrowUp: () => widest(frames.filter((frame) => drawn(frame) && frame.depth === current.depth + 1 && contains(current, frame))),
  ArrowDown: () => frames.find((frame) => drawn(frame) && frame.depth === current.depth - 1 && contains(frame, current)),
  ArrowRight: () => frames.find((frame) => drawn(frame) && frame.depth === current.depth && frame.start > current.start + tiny),
  ArrowLeft: () => frames.findLast((frame) => drawn(frame) && frame.depth === current.depth && frame.start < current.start - tiny),
  Home: () => frames[0],
};
document.getElementById("frames").addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === " ") zoom(current);
  else if (moves[event.key]) focus(moves[event.key]());
  else return;
  event.preventDefault();
});

for (const frame of frames) {
  frame.group.addEventListener("click", () => {
    zoom(frame);
    focus(frame);
  });
  frame.group.addEventListener("focus", () => {
    about.textContent = frame.about;
  });
  frame.group.addEventListener("mouseenter", () => {
    about.textContent = frame.about;
  });
  frame.group.addEventListener("mouseleave", () => {
    about.textContent = document.activeElement === current.group ? current.about : "";
  });
}
const all = () => zoom(frames[0]);

const lines = [...document.querySelectorAll("#table text")].map((line) => ({ line, text: line.textContent }));

// As wide as the window, but not narrower than a readable width.
function fit() {
  const wide = Math.max(document.documentElement.clientWidth || width, 600);
  inner = wide - 2 * side;
  graph.setAttribute("viewBox", `0 0 ${wide} ${height}`);
  graph.setAttribute("width", wide);
  document.getElementById("page").setAttribute("width", wide);
  for (const element of document.querySelectorAll(".right")) {
    element.setAttribute("transform", `translate(${wide - width} 0)`);
  }
  for (const { line, text } of lines) line.textContent = fitted(text, Math.floor(inner / character));
  zoom(shown || frames[0]);
  if (!drawn(current)) current = shown;
}
window.addEventListener("resize", fit);
fit();
reset.addEventListener("click", all);
reset.addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === " ") all();
});
search.addEventListener("input", look);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    search.value = "";
    look();
    all();
  } else if (event.key === "/" && document.activeElement !== search) {
    event.preventDefault();
    search.focus();
  }
});
