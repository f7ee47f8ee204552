// The viewer of attention maps, which the page of infer.attention_maps and the demo show.
const make = (tag, text, parent, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
};
const percent = w => (w / 10).toFixed(1) + " %";
const PREDICTED = "A query of the decoder is named after the subword that it predicts, and has read only those before it. "
  + "In a model that reads source and target as one text this holds for the target; "
  + "queries of the source are the source's own subwords.";

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
  const controls = make("div", undefined, root, "controls");
  const selects = Object.fromEntries([["kind", "attention"], ["layer", "layer"], ["head", "head"]].map(([name, text]) => {
    const select = make("select", undefined, make("label", text, controls));
    select.addEventListener("change", () => {
      chosen[name] = name === "kind" || select.value === "mean" ? select.value : +select.value;
      changed();
    });
    return [name, select];
  }));
  make("h3", "Queries", root);
  const predicted = make("p", PREDICTED, root, "caption");
  const queries = make("div", undefined, root, "tokens queries");
  queries.setAttribute("role", "group");
  queries.setAttribute("aria-label", "queries");
  const produced = make("p", "", root, "caption choices");
  make("h3", "Keys", root);
  const keys = make("div", undefined, root, "tokens keys");
  const status = make("output", "", root);
  make("h3", "The whole map: rows are queries, columns are keys", root);
  const scroll = make("div", undefined, root, "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "attention matrix");
  const matrix = make("table", undefined, scroll, "matrix");
  const legend = make("p", undefined, root, "legend");
  make("span", "0 %", legend);
  make("i", undefined, legend).setAttribute("aria-hidden", "true");
  make("span", "100 % of a query's weight", legend);
  make("h3", "All heads, a row a layer; the chosen one is marked", root);
  make("p", "Each small map is one head, with the rows and columns of the map above: the stronger the colour of a cell, the more its query attends to its key. Choose one to see it large.", root, "caption");
  const overview = make("div", undefined, root, "overview");
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
  function heat(element, w) {
    element.classList.add("heat");
    element.style.setProperty("--w", w / 10);
  }
  function options(select, values, current) {
    select.replaceChildren();
    for (const [value, text] of values) make("option", text, select).value = value;
    select.value = current;
  }
  function point(query) {
    words.set(side(), query);
    const row = weights()[query];
    const { queries: names, keys: seen, choices } = map();
    [...queries.children].forEach((button, i) => {
      button.setAttribute("aria-pressed", i === query);
      button.tabIndex = i === query ? 0 : -1;  // one stop for Tab; the arrow keys reach the others
    });
    [...keys.children].forEach((key, s) => { heat(key, row[s]); key.lastChild.textContent = percent(row[s]); });
    [...matrix.tBodies[0].rows].forEach((tr, i) => {
      tr.classList.toggle("on", i === query);
      tr.cells[0].classList.toggle("on", i === query);
    });
    const top = row.map((w, s) => [w, s]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    status.textContent = names[query] + " attends to " + top.map(([w, s]) => seen[s] + " " + percent(w)).join(", ");
    const choice = choices?.[query];
    produced.hidden = !choices;
    produced.textContent = choice
      ? `${names[query]} has probability ${percent(choice.probability)} here, rank ${choice.rank}; the most probable: `
        + choice.best.map(([subword, p]) => subword + " " + percent(p)).join(", ")
      : "this subword was given, not predicted";
  }
  function drawMatrix() {
    const rows = weights();
    matrix.replaceChildren();
    const top = make("tr", undefined, make("thead", undefined, matrix));
    make("th", "", top);
    map().keys.forEach(key => { make("th", key, top).scope = "col"; });
    const body = make("tbody", undefined, matrix);
    map().queries.forEach((query, t) => {
      const tr = make("tr", undefined, body);
      make("th", query, tr).scope = "row";
      map().keys.forEach((key, s) => {
        const cell = make("td", undefined, tr);
        heat(cell, rows[t][s]);
        cell.title = query + " → " + key + ": " + percent(rows[t][s]);
      });
      tr.addEventListener("pointerover", () => point(t));
    });
  }
  function drawTokens() {
    queries.replaceChildren();
    keys.replaceChildren();
    map().queries.forEach((query, t) => {
      const button = make("button", query, queries);
      button.type = "button";
      const choice = map().choices?.[t];
      if (choice) make("small", percent(choice.probability), button);
      for (const event of ["pointerenter", "focus", "click"]) button.addEventListener(event, () => point(t));
    });
    map().keys.forEach(key => make("small", "", make("span", key, keys)));
  }
  function drawOverview() {
    const colour = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim();
    const rgb = [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
    overview.replaceChildren();
    overview.style.setProperty("--heads", map().weights[0].length);
    map().weights.forEach((heads, n) => heads.forEach((one, h) => {
      const button = make("button", undefined, overview);
      button.type = "button";
      button.setAttribute("aria-label", "layer " + (n + 1) + ", head " + (h + 1));
      const canvas = make("canvas", undefined, button);
      canvas.width = one[0].length;
      canvas.height = one.length;
      const context = canvas.getContext("2d");
      const image = context.createImageData(canvas.width, canvas.height);
      one.flat().forEach((w, i) => image.data.set([...rgb, Math.round(w * 0.255)], 4 * i));
      context.putImageData(image, 0, 0);
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
    predicted.hidden = kind() === "encoder";
    drawTokens();
    drawMatrix();
    if (overviewOf !== map()) drawOverview();
    overviewOf = map();
    markOverview();
    point(word());
  }
  queries.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const next = step && queries.children[word() + step];
    if (next) { event.preventDefault(); next.focus(); }
  });
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
