// The sinusoids, and why PE(pos + k) is a rotation of PE(pos).

function drawPositions(root) {
  const d = model.config.d_model;
  slider(root, "pos", "pos", [0, 30, 1]);
  slider(root, "k", "k", [0, 30, 1]);
  const [pos, k] = [chosenOf("pos", 31), chosenOf("k", 31)];
  const [here, there] = [sinusoids(pos, d), sinusoids(pos + k, d)];
  // Eight pairs, those that turn fast.
  const pairs = range(8).map(n => {
    const j = Math.floor(n * d / 32);
    const angle = k * 10000 ** (-2 * j / d);
    const [sin, cos] = [here[2 * j], here[2 * j + 1]];
    return { j, angle, from: [sin, cos], to: [there[2 * j], there[2 * j + 1]],
      rotated: [sin * Math.cos(angle) + cos * Math.sin(angle), cos * Math.cos(angle) - sin * Math.sin(angle)] };
  });
  step(root, `1. From position ${pos} to ${pos + k} each pair turns`, "angle = k / 10000^(2i/d)",
    "The first pairs turn fast, like a second hand, later ones hardly at all. The angle depends only on k: PE(pos + k) = R(k) PE(pos), "
    + "so a matrix can find what stands k places on, wherever it is.");
  grid(root, { name: "the rotation of each pair", rows: pairs.map(({ j }) => `pair ${j + 1}`),
    columns: ["turned by", "sin here", "cos here", "rotated sin", "rotated cos", "sin at pos + k", "cos at pos + k"],
    values: pairs.map(({ angle, from, to, rotated }) => [`${short(angle * 180 / Math.PI)}°`, ...from, ...rotated, ...to]),
    text: value => typeof value === "string" ? value : short(value), heat: value => typeof value === "string" ? 0 : (value + 1) / 2 });
  step(root, "2. How alike two positions are", "PE(pos) · PE(pos + k)", "The same for every pos.");
  const places = range(24);
  grid(root, { name: "how alike positions are", rows: ["product"], columns: places.map(n => `k = ${n}`),
    values: [places.map(n => sinusoids(pos + n, d).reduce((sum, value, i) => sum + value * here[i], 0))] });
  step(root, "3. The picture", "PE(pos, 2i) = sin(pos / 10000^(2i/d)),  PE(pos, 2i+1) = cos of the same", "");
  strips(root, places.map(n => `pos ${n}`), places.map(n => sinusoids(n, d)), "encoder/embedding");
}
