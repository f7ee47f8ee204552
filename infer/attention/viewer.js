// The viewer of attention maps, which the page of infer.attention_maps and the demo show; it needs heatmap.js.
// What a page opens on: the mean over the heads of the last layer, by which infer.align aligns, too.
const opening = () => ({ kind: "cross", layer: Infinity, head: "mean" });

/* Fills `root` with one viewer and returns its function `draw`.

`data` has for each kind of attention: title, queries, keys, weights [layer][head][query][key] in thousandths, and
perhaps choices [query], which are null or {probability, rank, best: [[subword, probability]]}, in thousandths as well.
`chosen` is {kind, layer, head}, counted from 0 or "mean", where a layer beyond the last is the last; viewers may share
it, and `changed` is called when it is set. The query chosen is kept for each side: it stays the same word while kind,
layer and head change. What `data` has may be replaced before `draw`. */
function viewer(root, data, chosen, changed) {
  root.classList.add("viewer");
  const words = new Map();
  const controls = make("div.controls", undefined, root);
  const selects = Object.fromEntries([["kind", "attention"], ["layer", "layer"], ["head", "head"]].map(([name, text]) => {
    const select = make("select", undefined, make("label", text, controls));
    select.addEventListener("change", () => {
      chosen[name] = name === "kind" || select.value === "mean" ? select.value : +select.value;
      changed();
    });
    return [name, select];
  }));
  const maps = make("div.maps", undefined, root);
  const large = make("div", undefined, maps);
  const scroll = make("div.scroll", undefined, large);
  const matrix = make("table.matrix", undefined, scroll);
  matrix.setAttribute("aria-label", "attention weights, in per cent; rows are queries, columns are keys");
  const legend = make("p.legend", undefined, large);
  make("span", "attention weight: 0 %", legend);
  make("i", undefined, legend).setAttribute("aria-hidden", "true");
  make("span", "100 %", legend);
  const status = make("output", "", large);
  const produced = make("p.choices", "", large);
  const caption = make("p.caption", "", large);
  const heads = make("div", undefined, maps);
  make("h3", "The heads of each layer", heads);
  make("p.caption", "Choose one to see it large.", heads);
  const overview = make("div.overview", undefined, heads);
  overview.setAttribute("role", "group");
  overview.setAttribute("aria-label", "all layers and heads");

  const kind = () => chosen.kind in data ? chosen.kind : Object.keys(data).at(-1);
  const map = () => data[kind()];
  const layer = () => Math.min(chosen.layer, map().weights.length - 1);
  const head = () => chosen.head === "mean" ? "mean" : Math.min(chosen.head, map().weights[0].length - 1);
  const side = () => map().queries.join("\n");
  const word = () => words.get(side()) ?? 0;

  function weights() {
    const heads = map().weights[layer()];
    if (head() !== "mean") return heads[head()];
    return heads[0].map((row, t) => row.map((_, s) => heads.reduce((sum, one) => sum + one[t][s], 0) / heads.length));
  }
  function options(select, values, current) {
    select.replaceChildren();
    for (const [value, text] of values) make("option", text, select).value = value;
    select.value = current;
  }
  /* Says what the rows and columns are, for a model as this one is. */
  function told() {
    const { choices, weights } = map();
    const given = choices?.some(choice => !choice) ? "Rows of the source are its own subwords. " : "";
    const predicted = kind() === "encoder" ? ""
      : `Rows are named after the subword that the decoder writes next, having read only those before it. ${given}`;
    const probability = choices ? "The first column is no attention: it is how probable the model found the row's subword. " : "";
    const isLess = weights.some(heads => heads.some(rows => rows.some(row => row.reduce((sum, w) => sum + w) < 990)));
    const rest = isLess ? "; what is missing from 100 % is attention to nothing (model.softmax_one)" : " and sum to 100 %";
    return `Rows are queries, columns are keys. The weights of a row say how much it takes from each key${rest}. ${predicted}${probability}`
      + "Point at a cell, tap it or move with the arrow keys.";
  }
  function point(query) {
    words.set(side(), query);
    const { queries: names, keys, choices } = map();
    [...matrix.tBodies[0].rows].forEach((tr, t) => tr.classList.toggle("on", t === query));
    const top = weights()[query].map((w, s) => [w, s]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    const attends = `“${names[query].trim()}” attends to ` + top.map(([w, s]) => `${keys[s].trim()} ${percent(w / 1000)}`).join(" · ");
    if (status.textContent !== attends) status.textContent = attends; // a screen reader reads it only then
    const choice = choices?.[query];
    produced.hidden = !choices;
    produced.textContent = choice
      ? `“${names[query].trim()}” has probability ${percent(choice.probability / 1000)}, rank ${choice.rank}; the most probable: `
        + choice.best.map(([subword, p]) => `${subword.trim()} ${percent(p / 1000)}`).join(" · ")
      : "This subword was given, not predicted.";
  }
  function drawMatrix() {
    const { queries, keys, choices } = map();
    const shown = weights();
    const cell = (t, s) => weightCell(shown[t][s] / 1000);
    heatmap(matrix, { rows: queries, columns: keys, cell, first: word(), point });
    if (!choices) return;
    const probabilities = choices.map(one => one ? percent(one.probability / 1000) : "given");
    [...matrix.rows].forEach((row, n) => {
      const told = n ? make("td.probability", probabilities[n - 1], row) : make("th.probability", "probability", row, { scope: "col" });
      row.children[0].after(told);
    });
  }
  function drawOverview() {
    overview.replaceChildren();
    overview.style.setProperty("--heads", map().weights[0].length);
    map().weights.forEach((heads, n) => heads.forEach((one, h) => {
      const button = make("button", undefined, overview);
      button.type = "button";
      button.setAttribute("aria-label", "layer " + (n + 1) + ", head " + (h + 1));
      thumbnail(button, one.map(row => row.map(w => w / 1000)));
      make("span", "layer " + (n + 1) + ", head " + (h + 1), button);
      button.addEventListener("click", () => {
        Object.assign(chosen, { layer: n, head: h });
        changed();
        controls.scrollIntoView({ block: "nearest" });
      });
    }));
  }
  function markOverview() {
    const heads = map().weights[0].length;
    const at = head() === "mean" ? -1 : layer() * heads + head();
    [...overview.children].forEach((button, i) => button.setAttribute("aria-pressed", i === at));
  }
  let overviewOf = null;
  function draw() {
    const numbered = count => [...Array(count).keys()].map(n => [n, n + 1]);
    options(selects.kind, Object.entries(data).map(([name, one]) => [name, one.title]), kind());
    options(selects.layer, numbered(map().weights.length), layer());
    options(selects.head, [["mean", "mean of all"], ...numbered(map().weights[0].length)], head());
    caption.textContent = told();
    drawMatrix();
    if (overviewOf !== map()) drawOverview();
    overviewOf = map();
    markOverview();
    point(word());
  }
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", function recolour() {
    if (!root.isConnected) {
      dark.removeEventListener("change", recolour); // another viewer has taken this one's place
      return;
    }
    drawOverview();
    markOverview();
  });
  return draw;
}
