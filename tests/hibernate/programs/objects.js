// Buffers, a map, timers and garbage, checked until SIGUSR1.
const crypto = require("crypto");
let stop = false;
process.on("SIGUSR1", () => { stop = true; });
const buffers = Array.from({ length: 40 }, () => crypto.randomBytes(1 << 20));
const map = new Map(Array.from({ length: 200000 }, (_, i) => ["k" + i, { v: i, s: "x" + i }]));
const hash = () => buffers.reduce((h, b) => h.update(b), crypto.createHash("sha1")).digest("hex");
const want = hash();
let ticks = 0;
setInterval(() => {
  ticks++;
  let sum = 0;
  if (ticks % 20 === 5) for (const o of map.values()) sum += o.v;
  if ((ticks % 20 === 0 && hash() !== want) || (ticks % 20 === 5 && sum !== 199999 * 100000)) {
    console.log("WRONG");
    process.exit(9);
  }
  let garbage = [];
  for (let i = 0; i < 2000; i++) garbage.push({ a: i });
  if (stop && ticks % 20 === 6) {
    console.log("right after", ticks, "ticks");
    process.exit(0);
  }
}, 10);
