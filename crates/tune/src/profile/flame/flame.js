// Zoom by a click, search by text or /pattern/, Escape undoes both.
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
  // What is within another match is part of it.
  hits.sort((a, b) => a.start - b.start || b.width - a.width);
  let share = 0;
  let until = -1;
  for (const hit of hits) {
    if (hit.start >= until - tiny) {
      share += hit.width;
      until = hit.start + hit.width;
    }
  }
  found.textContent = text ? `${hits.length} boxes, ${(share * 100).toFixed(2)} %` : "";
}

for (const frame of frames) {
  frame.group.addEventListener("click", () => zoom(frame));
  frame.group.addEventListener("mouseenter", () => {
    about.textContent = frame.about;
  });
  frame.group.addEventListener("mouseleave", () => {
    about.textContent = "";
  });
}
const all = () => zoom(frames[0]);

// As wide as the window, but for windows too narrow to read anything in.
function fit() {
  const wide = Math.max(document.documentElement.clientWidth || width, 600);
  inner = wide - 2 * side;
  graph.setAttribute("viewBox", `0 0 ${wide} ${height}`);
  graph.setAttribute("width", wide);
  document.getElementById("page").setAttribute("width", wide);
  for (const element of document.querySelectorAll(".right")) {
    element.setAttribute("transform", `translate(${wide - width} 0)`);
  }
  zoom(shown || frames[0]);
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
