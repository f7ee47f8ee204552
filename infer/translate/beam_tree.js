// The beam of one sentence as a tree: a column a step, the most probable extension on top, a line to what it extends.
const BEAM_LEGEND = "Each column is a step of the search: every extension that it weighed, the most probable on top, with its log p. "
  + "A solid frame: kept, or finished with the score below it; a dashed one: pruned, less probable than the beam's, or given up when the search ended. "
  + "In colour: the translations returned, with their ranks. Point at one, or move with Tab, to read it whole.";

const SVG = document.querySelector("svg").namespaceURI; // of the empty one in the page

/* Fills `root` with the drawing of a tree: {steps: [[{token, text, parent, log_prob, state, score, rank}]], ...}. */
function beamTree(root, tree) {
  const COLUMN = 118, ROW = 38, BOX = 88, TALL = 30, LEFT = 46, TOP = 20;
  const shown = document.createElement("output");
  const frame = document.createElement("div");
  frame.className = "beam";
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "beam of the search");
  root.append(frame, shown);
  const draw = (name, parent, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const rows = Math.max(1, ...tree.steps.map(nodes => nodes.length));
  const width = LEFT + COLUMN * tree.steps.length + 10;
  const height = TOP + ROW * rows + 6;
  const svg = draw("svg", frame, { width, height, viewBox: `0 0 ${width} ${height}` });
  const lines = draw("g", svg, {});
  const middle = place => TOP + ROW * place + TALL / 2;
  draw("text", svg, { x: 4, y: middle(0) + 4 }, "start");
  const drawn = tree.steps.map(() => []);
  const parentOf = (step, place) => tree.steps[step][place].parent;
  const path = (step, place) => {
    const places = [];
    for (; step >= 0; place = parentOf(step, place), step--) places.unshift([step, place]);
    return places;
  };
  const number = value => value.toFixed(3).replace("-", "−");
  const mark = (step, place, name, on) => {
    for (const [n, at] of path(step, place)) for (const element of drawn[n][at]) element.classList.toggle(name, on);
  };
  const describe = (step, place) => {
    const node = tree.steps[step][place];
    const rank = node.rank ? `, translation ${node.rank}` : node.score !== null ? ", not among those returned" : "";
    const score = node.score === null ? "" : `, score ${number(node.score)}`;
    return `${node.text || "(empty)"}: ${node.state}${rank}, log p ${number(node.log_prob)}${score}`;
  };
  tree.steps.forEach((nodes, step) => {
    const x = LEFT + COLUMN * step;
    draw("text", svg, { x, y: 12, class: "number" }, "step " + (step + 1));
    nodes.forEach((node, place) => {
      const y = TOP + ROW * place;
      const from = step ? [x - COLUMN + BOX, middle(node.parent)] : [LEFT - 8, middle(0)];
      const bend = (x - from[0]) / 2;
      const line = draw("path", lines, { d: `M${from[0]},${from[1]} c${bend},0 ${bend},${middle(place) - from[1]} ${x - from[0]},${middle(place) - from[1]}` });
      const box = draw("g", svg, { class: node.state, tabindex: 0, role: "img", transform: `translate(${x},${y})` });
      draw("rect", box, { width: BOX, height: TALL, rx: 5 });
      const letters = [...node.token.trim() || node.token];
      draw("text", box, { x: 5, y: 13 }, letters.length > 11 ? letters.slice(0, 10).join("") + "…" : letters.join(""));
      const told = node.score === null ? number(node.log_prob) : (node.rank ? "#" + node.rank + "  " : "") + number(node.score);
      draw("text", box, { x: 5, y: 25, class: "number" }, told);
      drawn[step].push([line, box]);
      box.setAttribute("aria-label", describe(step, place));
      draw("title", box, {}, describe(step, place));
      for (const event of ["pointerenter", "focus"]) box.addEventListener(event, () => { mark(step, place, "on", true); shown.textContent = describe(step, place); });
      for (const event of ["pointerleave", "blur"]) box.addEventListener(event, () => mark(step, place, "on", false));
    });
  });
  tree.steps.forEach((nodes, step) => nodes.forEach((node, place) => { if (node.rank) mark(step, place, "returned", true); }));
}
