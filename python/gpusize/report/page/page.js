// Sorts tables, and draws figures anew from their points: values to point at, zoom, log or linear axes (charts.py).
// On paper a figure stands whole, whatever stretch of it was looked at.
const {abs, floor, log10, max, min} = Math;
const all = (q, e = document) => [...e.querySelectorAll(q)];
const esc = s => s.replace(/[&<>"]/g, c => `&#${c.charCodeAt()};`);
const fmt = v => abs(v) < 100 ? `${+v.toPrecision(3)}` : Math.round(v).toLocaleString("en");

const amount = t => parseFloat(t.replace(/,/g, "")) * ({k: 1e3, M: 1e6, G: 1e9, T: 1e12}[t.at(-1)] ?? 1);
for (const th of all(".sort thead th")) {
  const button = document.createElement("button");
  button.append(...th.childNodes);
  th.append(button);
  button.onclick = () => {
    const sign = th.ariaSort == "ascending" ? -1 : 1, body = th.closest("table").tBodies[0];
    const text = row => row.cells[th.cellIndex].textContent;
    for (const each of th.parentNode.cells) each.ariaSort = null;
    th.ariaSort = sign < 0 ? "descending" : "ascending";
    body.append(...[...body.rows].sort((p, q, a = text(p), b = text(q)) => (a == "–") - (b == "–")
      || sign * (amount(a) - amount(b) || a.localeCompare(b, "en", {numeric: true}))));
  };
}

const share = (v, [a, b], log) => log ? Math.log(max(v, a / 99) / a) / Math.log(b / a) : (v - a) / (b - a);
const ticks = ([a, b], log, n) => {
  const out = [], ten = 10 ** floor(log10((b - a) / n)), step = ten * [1, 2, 5, 10].find(m => m * ten * n >= b - a);
  if (log) for (let e = 10 ** floor(log10(a)); e <= b; e *= 10) out.push(...(b > 99 * a ? [e] : [e, 2 * e, 5 * e]));
  else for (let k = Math.ceil(a / step); k * step <= b; k++) out.push(k * step);
  return out.filter(v => v >= a && v <= b);
};

const chart = (fig, c) => {
  const [plot, bar, still] = all(".plot,.bar,.still", fig), L = 48, {xs} = c;
  let at = 0, W, w, range, from;
  still.remove();
  const X = v => L + w * share(v, range, c.log), within = x => x >= range[0] && x <= range[1];
  const back = px => c.log ? range[0] * (range[1] / range[0]) ** ((px - L) / w) : range[0] + (range[1] - range[0]) * (px - L) / w;
  const text = (x, y, color, t, how = "") => `<text x="${x}" y="${y}" style="fill:var(--${color})" class="${how}">${esc(t)}</text>`;

  const draw = wide => {
    W = +wide || plot.clientWidth;
    w = W - L - 92;
    range = !+wide && c.zoom || c.lims[+c.log];
    plot.innerHTML = c.p.map(p => {
      const h = c.p[1] ? 130 : 250, lim = p.lims[+p.y], Y = y => h - h * share(y, lim, p.y), last = p == c.p.at(-1);
      let out = "", over = text(0, 12 - p.up, "muted", p.l), low = -9, free = 0;
      const line = (how, color, points) => out += `<path class="${how}" style="stroke:var(--${color})" d="${points.map(([x, y], k) =>
        how == "dot" ? `M${X(x)} ${Y(y)}h0` : `${k ? "L" : "M"}${X(x)} ${Y(y)}`).join("")}"/>`;
      for (const y of ticks(lim, p.y, h / 45)) {
        line("thin", "grid", range.map(x => [x, y]));
        over += text(L - 7, Y(y) + 4, "ink", fmt(y), "end");
      }
      for (const each of p.s) line(...each);
      for (const [x, y, dx, dy, how, color, t] of p.n) if (within(x)) over += text(X(x) + dx, Y(y) - dy, color, t, how);
      for (const [y, color, t] of p.e.sort((a, b) => b[0] - a[0])) {
        low = max(Y(y), low + 14);
        over += text(L + w + 7, low + 4, color, t, "bold");
      }
      if (last) for (const x of c.lv ? xs : ticks(range, c.log, w / 70)) if (within(x) && X(x) > free) {
        over += text(X(x), h + 17, "ink", fmt(x), "middle");
        free = X(x) + 32;
      }
      return `<svg aria-hidden="true" viewBox="0 ${-p.up} ${W} ${h + p.up + (last ? 40 : 8)}"><svg x="${L - 5}" width="${w + 10}" height="${h + 4}" viewBox="${
        L - 5} 0 ${w + 10} ${h + 4}">${out}</svg>${over}${last ? text(L + w / 2, h + 35, "muted", c.x, "middle") : ""}</svg>`;
    }).join("") + "<i></i><output></output>";
  };
  const show = k => {
    const px = X(xs[at = max(0, min(xs.length - 1, k))]), [line, tip] = all("i,output", plot);
    line.style = `left:${px}px;opacity:1`;
    tip.style = `left:${px}px;translate:${px > W / 2 ? -105 : 5}%`;
    tip.innerHTML = `<b>${fmt(xs[at])} ${esc(c.u)}</b>` + c.r.map(([name, color, values]) => values[at]
      && `<span style="color:var(--${color})">${esc(name)} <b>${esc(values[at])}</b></span>`).join("");
  };
  const zoomTo = (a, b) => {
    c.zoom = b > a && [a, b];
    draw();
  };
  bar.onclick = ({target: {name, ariaPressed}, target}) => {
    const on = ariaPressed == "false";
    if (ariaPressed) target.ariaPressed = on;
    if (name == "x") c.log = on;
    if (name == "y") for (const p of c.p) p.y = on && !!p.lims[1];
    zoomTo(...name == "in" ? range.map(v => back(X(xs[at]) * .4 + X(v) * .6)) : []);
  };
  const pixel = e => e.clientX - plot.getBoundingClientRect().left;
  plot.onpointerdown = e => from = pixel(e);
  plot.onpointermove = e => {
    const off = xs.map(x => abs(X(x) - pixel(e)));
    show(off.indexOf(min(...off)));
  };
  plot.onpointerup = e => {
    const px = pixel(e);
    if (abs(px - from) > 9) zoomTo(...[back(from), back(px)].sort((a, b) => a - b));
  };
  plot.onkeydown = ({key}) => /^Arrow[LR]/.test(key) && show(at + (key > "ArrowM" ? 1 : -1));
  for (const how of ["resize", "afterprint"]) addEventListener(how, draw);
  addEventListener("beforeprint", () => draw(680));
  draw();
};
document.documentElement.className = "js";
const charts = JSON.parse(all("#charts")[0].textContent);
for (const id in charts) chart(all(`#${id}`)[0], charts[id]);
