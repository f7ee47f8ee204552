// Attention weights as a table and as a thumbnail, which the page of infer.attention_maps, the demo and the explorer draw.
const make = (tag, text, parent, name) => {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
};
const percent = w => w > 0 && w < 0.5 ? "< 0.1 %" : (w / 10).toFixed(1) + " %";

/* Fills a table with weights [query][key] in thousandths; the arrow keys walk through its cells.

`choices` are null or {probability}, in thousandths, and fill a first column; a cell with `isMasked(query, key)` stays
empty. `point(query, key)` is called for what is pointed at, without a key at a row's name. Tab reaches `first`'s row. */
function heatmap(table, { queries, keys, weights, choices, isMasked = () => false, first = 0, point }) {
  table.replaceChildren();
  table.setAttribute("role", "grid");
  const top = make("tr", undefined, make("thead", undefined, table));
  make("td", "", top);
  if (choices) make("th", "probability", top, "probability").scope = "col";
  for (const key of keys) {
    const th = make("th", undefined, top);
    Object.assign(th, { scope: "col", title: key });
    make("span", key, th);
  }
  const body = make("tbody", undefined, table);
  const cells = queries.map((query, t) => {
    const tr = make("tr", undefined, body);
    Object.assign(make("th", query, tr), { scope: "row", title: query });
    if (choices) make("td", choices[t] ? percent(choices[t].probability) : "given", tr, "probability");
    tr.addEventListener("pointerover", event => point(t, row.includes(event.target) ? row.indexOf(event.target) : undefined));
    const row = keys.map((key, s) => {
      const w = weights[t][s];
      const isEmpty = isMasked(t, s);
      const cell = make("td", isEmpty || w < 5 ? "" : Math.round(w / 10), tr, isEmpty ? "heat masked" : "heat");
      const told = isEmpty ? "masked" : percent(w);
      cell.setAttribute("role", "gridcell");
      cell.setAttribute("aria-label", told);
      cell.title = `${query} → ${key}: ${told}`;
      cell.tabIndex = -1;
      cell.style.setProperty("--w", w / 10);
      for (const event of ["focus", "click"]) cell.addEventListener(event, () => point(t, s));
      return cell;
    });
    return row;
  });
  cells[first][0].tabIndex = 0; // one stop for Tab; the arrow keys reach the others
  table.onkeydown = event => {
    const t = cells.findIndex(row => row.includes(event.target));
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [];
    const next = t >= 0 && cells[t + down]?.[cells[t].indexOf(event.target) + right];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
}

/* Draws weights [query][key] in thousandths, a pixel each, in a colour given as [red, green, blue]. */
function thumbnail(root, weights, colour) {
  const canvas = make("canvas", undefined, root);
  canvas.width = weights[0].length;
  canvas.height = weights.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  weights.flatMap(row => Array.from(row)).forEach((w, i) => image.data.set([...colour, Math.round(w * 0.255)], 4 * i));
  context.putImageData(image, 0, 0);
}
