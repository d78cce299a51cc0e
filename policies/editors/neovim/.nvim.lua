-- For Neovim 0.11 or later, with `vim.o.exrc = true` in your own configuration. Start nvim in the directory of the bundle.
-- It needs yaml-language-server, for YAML, and cedar, the command line of Cedar, to format policies.

vim.filetype.add({ extension = { cedar = "cedar", cedarschema = "cedarschema" } })

vim.api.nvim_create_autocmd("FileType", {
  pattern = { "cedar", "cedarschema" },
  callback = function(event)
    vim.bo[event.buf].commentstring = "// %s"
    vim.bo[event.buf].shiftwidth = 2
    vim.bo[event.buf].expandtab = true
    if event.match == "cedar" then
      vim.bo[event.buf].formatprg = "cedar format --line-width 80 --indent-width 2" -- gggqG formats the file
    end
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
