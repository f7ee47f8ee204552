// The beam of one sentence as a tree: a column a step, a line from each extension to what it extends.
const BEAM_LEGEND = "Each column is a step of the search, the most probable extension on top unless a line goes straight on. In "
  + "colour: the best translation; in black: the others returned, with their ranks; in grey: what fell behind or was given up when the "
  + "search ended. Dotted lines lead to what was dropped at once. Point at a word, or move with Tab, to read the whole.";

const SVG = document.querySelector("svg").namespaceURI; // of the empty one in the page

/* Returns for each node its row, undefined if it is not shown: where it can, a hypothesis stays in its row. */
function beamRows(steps, isShown) {
  // The rank of the best translation that each node leads to.
  const leads = steps.map(nodes => nodes.map(node => node.rank || Infinity));
  for (let n = steps.length - 1; n > 0; n--) {
    steps[n].forEach(({ parent }, i) => { leads[n - 1][parent] = Math.min(leads[n - 1][parent], leads[n][i]); });
  }
  const rows = [];
  steps.forEach((nodes, n) => {
    const order = [...nodes.keys()].filter(i => isShown(nodes[i]));
    order.sort((a, b) => (leads[n][a] === leads[n][b] ? 0 : leads[n][a] - leads[n][b]) || a - b);
    const taken = new Set();
    const take = (i, row) => { taken.add(row); rows[n][i] = row; };
    rows[n] = [];
    for (const i of n ? order : []) {
      const row = rows[n - 1][nodes[i].parent];
      if (!taken.has(row)) take(i, row);
    }
    for (const i of order) {
      if (rows[n][i] !== undefined) continue;
      let row = 0;
      while (taken.has(row)) row++;
      take(i, row);
    }
  });
  return { rows, leads };
}

/* Fills `root` with the drawing of a tree: {steps: [[{token, text, parent, log_prob, state, score, rank}]], ...}.

With `isWhole` it also shows at first the extensions that were dropped at once. In a narrow root it grows downwards. */
function beamTree(root, tree, isWhole = false) {
  const number = value => value.toFixed(3).replace("-", "−");
  const describe = node => {
    const rank = node.rank ? `, translation ${node.rank}` : node.score !== null ? ", not among those returned" : "";
    const score = node.score === null ? "" : `, score ${number(node.score)}`;
    return `${node.text || "(empty)"}: ${node.state}${rank}, log p ${number(node.log_prob)}${score}`;
  };
  const draw = (name, parent, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (text !== undefined) element.textContent = text;
    parent.append(element);
    return element;
  };
  const part = (name, text, className = "") => {
    const element = document.createElement(name);
    element.className = className;
    if (text) element.textContent = text;
    root.append(element);
    return element;
  };
  const button = part("button", "", "link");
  button.type = "button";
  const frame = part("div", "", "beam");
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "beam of the search");
  const shown = part("output", "\u00a0");

  const isRanked = tree.steps.some(nodes => nodes.some(node => node.rank));

  function show() {
    button.textContent = isWhole ? "Hide what was dropped" : "Show what was dropped";
    const { rows, leads } = beamRows(tree.steps, node => isWhole || node.state === "kept" || node.state === "finished" && (node.rank || !isRanked));
    const count = 1 + Math.max(0, ...rows.flat().filter(row => row !== undefined));
    const isDown = root.clientWidth < 600;
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `15px ${getComputedStyle(frame).fontFamily}`;
    const name = node => {
      const letters = [...node.token.trim() || node.token];
      return node.state === "finished" ? "" : letters.length > 16 ? letters.slice(0, 15).join("") + "…" : letters.join("");
    };
    const wide = node => node.state === "finished" ? 16 : Math.ceil(pen.measureText(name(node)).width);
    const widths = tree.steps.map((nodes, n) => Math.max(14, ...nodes.map((node, i) => rows[n][i] === undefined ? 0 : wide(node))));
    // Where each step begins; downwards, where each row does.
    const START = 40;
    const free = root.clientWidth - START - widths.reduce((a, b) => a + b, 0) - 16;
    const gap = Math.max(30, Math.min(52, free / (tree.steps.length + 1)));
    const lane = Math.max((root.clientWidth - 12) / count, ...isDown ? widths.map(width => width + 14) : [0]);
    const starts = [START + gap];
    for (const width of widths) starts.push(starts.at(-1) + width + gap);
    const place = (n, row) => isDown ? [4 + lane * row, 44 + 29 * n] : [starts[n], 30 + 24 * row];
    const [width, height] = isDown ? [8 + lane * count, 50 + 29 * tree.steps.length] : [starts.at(-1) - gap + 4, 24 + 24 * count];

    frame.replaceChildren();
    const svg = draw("svg", frame, { width, height, viewBox: `0 0 ${width} ${height}` });
    const lines = draw("g", svg, {});
    draw("text", svg, isDown ? { x: 4, y: 16, class: "start" } : { x: 0, y: 35, class: "start" }, "start");
    const drawn = tree.steps.map(() => []);
    const mark = (n, i, name, on) => {
      for (; n >= 0; i = tree.steps[n][i].parent, n--) for (const one of drawn[n][i]) one.classList.toggle(name, on);
    };
    tree.steps.forEach((nodes, n) => {
      if (!isDown) draw("text", svg, { x: starts[n], y: 11, class: "number" }, n + 1);
      nodes.forEach((node, i) => {
        const row = rows[n][i];
        if (row === undefined) return;
        const [x, y] = place(n, row);
        const parent = n ? tree.steps[n - 1][node.parent] : null;
        const [px, py] = parent ? place(n - 1, rows[n - 1][node.parent]) : isDown ? [4, 15] : [0, 30];
        const curve = isDown
          ? [[px + 8, py + 6], [px + 8, y - 8], [x + 8, py + 8], [x + 8, y - 14]]
          : [[px + (parent ? wide(parent) + 8 : 36), py], [starts[n] - gap / 2, py], [starts[n] - gap / 2, y], [x - 8, y]];
        if (!isDown && parent) curve.splice(1, 0, ...Array(3).fill([starts[n] - gap + 8, py])); // straight to the end of its column
        const lead = leads[n][i];
        const state = node.state + (lead < Infinity ? " returned" : "") + (lead === 1 ? " best" : "");
        const line = draw("path", lines, { class: state, d: `M${curve[0]}C${curve.slice(1).join(" ")}` });
        const box = draw("g", svg, { class: state, tabindex: 0, role: "img", "aria-label": describe(node) });
        draw("title", box, {}, describe(node));
        if (node.state === "finished") {
          draw("circle", box, { cx: x + 8, cy: y, r: 8 });
          draw("text", box, { x: x + 8, y: y + 4, class: "rank" }, node.rank || "");
        } else draw("text", box, { x, y: y + 5 }, name(node));
        drawn[n][i] = [line, box];
        for (const event of ["pointerenter", "focus"]) box.addEventListener(event, () => { mark(n, i, "on", true); shown.textContent = describe(node); });
        for (const event of ["pointerleave", "blur"]) box.addEventListener(event, () => mark(n, i, "on", false));
      });
    });
    for (const kind of ["returned", "best"]) lines.append(...lines.querySelectorAll(`.${kind}`)); // drawn over the others
  }
  button.addEventListener("click", () => { isWhole = !isWhole; show(); });
  show();
}
