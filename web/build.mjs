// Builds the participant's page, one file that needs nothing else: node build.mjs FILE
import {createHash} from "node:crypto";
import {readdirSync, readFileSync, statSync, writeFileSync} from "node:fs";
import {join} from "node:path";

import {build} from "esbuild";

process.chdir(import.meta.dirname);
const file = process.argv[2] ?? "../deploy/page/participate.html";
const hash = (text) => `sha256-${createHash("sha256").update(text).digest("base64")}`;

/** Returns the files below a folder, sorted. */
function below(folder) {
  const entries = readdirSync(folder).map((name) => join(folder, name));
  return entries.flatMap((name) => (statSync(name).isDirectory() ? below(name) : [name])).sort();
}

/** Returns a hash of everything that the page is made from, by which a test notices a page that was not built again. */
function sources() {
  const whole = createHash("sha256");
  for (const name of ["build.mjs", "package-lock.json", "tsconfig.json", ...below("src")]) {
    whole.update(`${name} ${createHash("sha256").update(readFileSync(name)).digest("hex")}\n`);
  }
  return whole.digest("hex");
}

const built = await build({
  entryPoints: ["src/main.ts"],
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  minify: true,
  legalComments: "inline",
  write: false,
});
const script = `\n${built.outputFiles[0].text.replaceAll("</script", "<\\/script")}`;
const style = `\n${readFileSync("src/page.css", "utf8")}`;
const policy = [
  "default-src 'none'",
  `script-src '${hash(script)}'`,
  `style-src '${hash(style)}'`,
  "connect-src 'self' https: http://127.0.0.1:* http://localhost:*",
  "img-src data:",
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
const parts = {policy, style, script, sources: sources()};
const template = readFileSync("src/page.html", "utf8");
writeFileSync(file, template.replace(/\{\{(\w+)\}\}/g, (_, name) => parts[name]));
