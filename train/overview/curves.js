// The curves of runs: drawn as SVG from the page's data, with smoothing, log axes, and runs that can be hidden.
const by = id => document.getElementById(id);
const { names, panels } = JSON.parse(by("data").textContent);

// Readable on white and on black; dashes tell apart what has the same colour.
const COLOURS = ["#3b82c4", "#e0722f", "#2f9e78", "#c65b9b", "#a8861c", "#8a6fd1", "#d2504b", "#6d8296"];
const DASHES = ["", "6 3", "2 2", "8 3 2 3"];
const EDGE = { left: 52, right: 10, top: 8, bottom: 34 };
const hidden = new Set();
let cursor = null; // the update that is looked at; null for the last of each curve

const number = x => x === null ? "not finite" : Math.abs(x) < 1e-3 || Math.abs(x) >= 1e6 ? x.toExponential(2) : x.toFixed(4);
const whole = x => Math.round(x).toLocaleString("en");

function svg(tag, parent, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
function make(tag, parent, text) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
const stroke = n => ({ stroke: COLOURS[n % COLOURS.length], "stroke-dasharray": DASHES[Math.floor(n / COLOURS.length) % DASHES.length] });

/* Returns the running mean in which a value counts `factor` times as much as the next one, without a bias to zero. */
function smoothed(values, factor) {
  let sum = 0;
  let weight = 0;
  return values.map(value => {
    if (value === null) return null;
    sum = factor * sum + (1 - factor) * value;
    weight = factor * weight + (1 - factor);
    return sum / weight;
  });
}

/* Returns where values lie on an axis from `first` to `last` pixels, and its ticks, at least `apart` pixels apart. */
function axis(values, isLog, first, last, apart) {
  const scale = isLog ? Math.log10 : x => x;
  const usable = values.filter(x => x !== null && (!isLog || x > 0));
  let low = usable.reduce((a, b) => Math.min(a, b), Infinity);
  let high = usable.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!usable.length) [low, high] = [1, 10];
  if (low === high) [low, high] = isLog ? [low / 2, high * 2] : [low - 0.5, high + 0.5];
  const at = x => first + (scale(x) - scale(low)) / (scale(high) - scale(low)) * (last - first);
  const ticks = [];
  const most = Math.abs(last - first) / apart;
  let step = 10 ** Math.floor(Math.log10((high - low) / most));
  step *= [1, 2, 5, 10].find(factor => (high - low) / (step * factor) <= most) ?? 10;
  for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(+(k * step).toPrecision(12));
  if (isLog && high / low > 5) {
    const factors = high / low > 1000 ? [1] : [1, 2, 5];
    ticks.length = 0;
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++)
      ticks.push(...factors.map(factor => +(factor * 10 ** power).toPrecision(12)).filter(x => x >= low && x <= high));
  }
  return { at, ticks, includes: x => Number.isFinite(x) && (!isLog || x > 0) };
}

/* Returns the place of the point of a curve that is nearest to an update; the last one if there is none. */
function nearest(steps, update) {
  if (update === null) return steps.length - 1;
  let best = 0;
  steps.forEach((step, i) => { if (Math.abs(step - update) < Math.abs(steps[best] - update)) best = i; });
  return best;
}

// The legend, which is a table of values as well

const cells = names.map(() => []);
function drawLegend() {
  const head = make("tr", make("thead", by("legend")));
  make("th", head, "curve").scope = "col";
  for (const { title } of panels) Object.assign(make("th", head, title), { scope: "col", className: "number" });
  const body = make("tbody", by("legend"));
  names.forEach((name, n) => {
    const tr = make("tr", body);
    const label = make("label", Object.assign(make("th", tr), { scope: "row" }));
    const box = make("input", label);
    box.type = "checkbox";
    box.checked = true;
    box.addEventListener("change", () => { hidden[box.checked ? "delete" : "add"](n); draw(); });
    svg("line", svg("svg", label, { width: 26, height: 10, "aria-hidden": true }), { x1: 0, x2: 26, y1: 5, y2: 5, "stroke-width": 2.5, ...stroke(n) });
    make("span", label, name);
    panels.forEach((_, p) => { cells[n][p] = Object.assign(make("td", tr), { className: "number" }); });
    for (const [event, isOver] of [["pointerenter", true], ["pointerleave", false]])
      tr.addEventListener(event, () => {
        for (const mark of document.querySelectorAll("#panels [data-curve]")) mark.classList.toggle("faded", isOver && +mark.dataset.curve !== n);
      });
  });
}
function tell() {
  by("update").textContent = cursor === null ? "Values at the end of each curve" : `Values at update ${whole(cursor)}, or nearest to it`;
  names.forEach((_, n) => panels.forEach(({ curves }, p) => {
    const { steps, mean } = curves[n];
    cells[n][p].textContent = steps.length ? number(mean[nearest(steps, cursor)]) : "";
  }));
}

// The panels

const frames = panels.map(({ title, curves }) => {
  const figure = make("figure", by("panels"));
  make("h2", figure, title);
  const drawing = svg("svg", figure, { role: "slider", tabindex: 0, "aria-label": `${title}; arrow keys move over the updates` });
  const steps = [...new Set(curves.flatMap(curve => curve.steps))].sort((a, b) => a - b);
  const frame = { title, curves, drawing, steps, x: null };
  drawing.addEventListener("pointermove", event => {
    const left = drawing.getBoundingClientRect().left;
    const place = step => Math.abs(frame.x(step) - (event.clientX - left));
    look(frame.steps.reduce((best, step) => place(step) < place(best) ? step : best, frame.steps[0] ?? null));
  });
  drawing.addEventListener("pointerleave", () => look(null));
  drawing.addEventListener("keydown", event => {
    const now = nearest(frame.steps, cursor);
    const next = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: frame.steps.length - 1 }[event.key];
    if (frame.steps[next] === undefined) return;
    event.preventDefault();
    look(frame.steps[next]);
  });
  return frame;
});
function look(update) {
  cursor = update;
  tell();
  frames.forEach(drawCursor);
}

function drawPanel(frame) {
  const { drawing, curves } = frame;
  const width = Math.max(240, drawing.parentElement.clientWidth);
  const height = Math.min(420, Math.max(230, Math.round(width * 0.55)));
  const factor = +by("smoothing").value;
  const seen = curves.map((curve, n) => ({ ...curve, n })).filter(({ n }) => !hidden.has(n));
  const x = axis(seen.flatMap(({ steps }) => steps), by("logx").checked, EDGE.left, width - EDGE.right, 60);
  const y = axis(seen.flatMap(({ mean, low, high }) => [...mean, ...low, ...high]), by("logy").checked, height - EDGE.bottom, EDGE.top, 30);
  drawing.replaceChildren();
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const tick of x.ticks) {
    svg("line", drawing, { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: EDGE.top, y2: height - EDGE.bottom });
    svg("text", drawing, { x: x.at(tick), y: height - EDGE.bottom + 14, "text-anchor": "middle" }, whole(tick));
  }
  for (const tick of y.ticks) {
    svg("line", drawing, { class: "grid", x1: EDGE.left, x2: width - EDGE.right, y1: y.at(tick), y2: y.at(tick) });
    svg("text", drawing, { x: EDGE.left - 6, y: y.at(tick) + 4, "text-anchor": "end" }, tick);
  }
  svg("text", drawing, { x: width - EDGE.right, y: height - 4, "text-anchor": "end" }, "updates");
  const points = (steps, values) => steps.map((step, i) => [step, values[i]]).filter(([step, value]) => x.includes(step) && y.includes(value))
    .map(([step, value]) => `${x.at(step).toFixed(1)},${y.at(value).toFixed(1)}`);
  for (const { n, steps, mean, low, high } of seen) {
    const fill = COLOURS[n % COLOURS.length];
    const above = points(steps, high);
    if (above.length) svg("polygon", drawing, { class: "band", fill, "data-curve": n, points: [...above, ...points(steps, low).reverse()].join(" ") });
    if (factor) svg("polyline", drawing, { class: "line raw", points: points(steps, mean).join(" "), ...stroke(n), "data-curve": n });
    const drawn = points(steps, smoothed(mean, factor));
    svg("polyline", drawing, { class: "line", points: drawn.join(" "), ...stroke(n), "data-curve": n });
    if (drawn.length < 30) for (const point of drawn) {
      const [cx, cy] = point.split(",");
      svg("circle", drawing, { cx, cy, r: 2.5, fill, "data-curve": n });
    }
  }
  frame.x = x.at;
  frame.height = height;
  frame.marks = svg("g", drawing, {});
  frame.includes = x.includes;
  drawCursor(frame);
}
function drawCursor(frame) {
  const { drawing, steps, marks, title } = frame;
  marks.replaceChildren();
  if (!steps.length) return;
  const update = steps[nearest(steps, cursor)];
  const told = frame.curves.map((curve, n) => curve.steps.length && !hidden.has(n) ? `${names[n]} ${number(curve.mean[nearest(curve.steps, cursor)])}` : "");
  drawing.setAttribute("aria-valuemin", steps[0]);
  drawing.setAttribute("aria-valuemax", steps.at(-1));
  drawing.setAttribute("aria-valuenow", update);
  drawing.setAttribute("aria-valuetext", `update ${whole(update)}, ${title}: ${told.filter(Boolean).join("; ")}`);
  if (cursor === null || !frame.includes(cursor)) return;
  const at = Math.max(EDGE.left, Math.min(frame.x(cursor), frame.x(steps.at(-1))));
  svg("line", marks, { class: "cursor", x1: at, x2: at, y1: EDGE.top, y2: frame.height - EDGE.bottom });
}
function draw() {
  frames.forEach(drawPanel);
  tell();
}

drawLegend();
for (const id of ["smoothing", "logx", "logy"]) by(id).addEventListener("input", draw);
new ResizeObserver(draw).observe(by("panels"));
