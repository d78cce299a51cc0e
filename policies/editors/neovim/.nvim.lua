-- For Neovim 0.11 or later, with `vim.o.exrc = true` in your own configuration. Start nvim in the directory of the bundle.
-- It needs policy-service, and yaml-language-server for YAML.

vim.filetype.add({ extension = { cedar = "cedar", cedarschema = "cedarschema" } })

vim.api.nvim_create_autocmd("FileType", {
  pattern = { "cedar", "cedarschema" },
  callback = function(event)
    vim.bo[event.buf].commentstring = "// %s"
    vim.bo[event.buf].shiftwidth = 2
    vim.bo[event.buf].expandtab = true
  end,
})

vim.lsp.config("yamlls", {
  cmd = { "yaml-language-server", "--stdio" },
  filetypes = { "yaml" },
  root_markers = { "bundle.yaml" },
  settings = {
    yaml = {
      schemas = {
        [".schemas/bundle.schema.json"] = { "bundle.yaml" },
        [".schemas/obligations.schema.json"] = { "obligations.yaml", "!**/tests/*" },
        [".schemas/tests.schema.json"] = { "**/tests/*.yaml", "**/tests/*.yml", "**/tests/*.json" },
        [".schemas/access.schema.json"] = { "**/access/*.yaml", "**/access/*.yml" },
      },
    },
  },
})
vim.lsp.enable("yamlls")

vim.lsp.config("policy_service", {
  cmd = { "policy-service", "lsp" },
  filetypes = { "cedar", "cedarschema", "yaml", "json" },
  root_markers = { "bundle.yaml" },
})
vim.lsp.enable("policy_service")
